"""Predicts a step of a recorded DistributedDataParallel training on another system.

It is the recorded computation, and the part of the exchange of gradients that computation does not
hide there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from busbw.core.collectives import BY_NAME
from busbw.model.buckets import Bucket, exposed_s
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import MeasuredCurves, forecast
from busbw.model.types import PredictedStep

GRADIENTS = "all_reduce"


@dataclass(frozen=True, slots=True)
class RecordedTraining:
    """A step of a recorded training."""

    ranks: int  # of the recording
    buckets: Sequence[Bucket]
    dtypes: Sequence[str]  # the element type of each bucket
    step_s: float  # how long the step took
    waited_s: float  # the part of it after backward, when it waited for gradients


def predicted_step(
    training: RecordedTraining,
    setting: EstimateInputs,
    hosts: int,
    per_host: int,
    evidence: MeasuredCurves,
) -> PredictedStep | None:
    """The step on so many hosts; None where a bucket has no time."""
    expected = []
    for bucket, dtype in zip(training.buckets, training.dtypes, strict=True):
        of_type = replace(setting, dtype=dtype or setting.dtype)
        one = forecast(of_type, BY_NAME[GRADIENTS], hosts, per_host, bucket.nbytes, evidence)
        if one is None:
            return None
        expected.append(one)
    exposed, shortest, longest = (
        exposed_s(training.buckets, times, [])
        for times in (
            [one.time_s for one in expected],
            [one.time_s * one.busbw / one.high for one in expected],
            [one.time_s * one.busbw / one.low for one in expected],
        )
    )
    return PredictedStep(
        recorded_s=training.step_s,
        recorded_exposed_s=training.waited_s,
        step_s=training.step_s - training.waited_s + exposed,
        exposed_s=exposed,
        least_exposed_s=shortest,
        most_exposed_s=longest,
    )
