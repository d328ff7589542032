"""Measures the exchanges for a plan of a recorded training: its buckets, without its model."""

from collections.abc import Callable, Iterator, Sequence
from math import prod

import torch
from msgspec.structs import replace
from torch import nn

from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.measure.events import EnterPhase, Event
from busbw.model.buckets import Bucket, exposed_s
from busbw.pattern.training.recorded_step import RecordedBucket, RecordedStep, elements, merged
from busbw_accel.train.bench import Bench
from busbw_accel.train.kinds import Surveyed
from busbw_accel.train.methods import Method
from busbw_accel.train.models import Model
from busbw_accel.train.plan_measure import Survey
from busbw_accel.train.plan_types import (
    BUCKETS_MB,
    BucketLayout,
    ExchangeRound,
    LayoutRound,
    PlanSpec,
)
from busbw_accel.train.replay import ReplayedBucket
from busbw_accel.train.types import TrainSpec

NAME, UNIT = "recorded", "step"
COLUMNS = 1024  # of the matrices that stand for parameters of unknown shapes
SEED = 3


def recorded_model(step: RecordedStep) -> Model:
    """A model with parameters like the recorded ones, which cannot compute."""

    def build(_: TrainSpec) -> nn.Module:
        return RecordedParameters(step)

    return Model(NAME, UNIT, build)


class RecordedParameters(nn.Module):
    """The parameters of each bucket."""

    def __init__(self, step: RecordedStep) -> None:
        super().__init__()
        self.buckets = nn.ModuleList()
        for bucket in step.buckets:
            dtype = _dtype(bucket)
            parameters = [
                nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in _shapes(bucket)
            ]
            self.buckets.append(nn.ParameterList(parameters))

    def in_order(self) -> Iterator[nn.Parameter]:
        """All parameters, those of the first bucket first."""
        for bucket in self.buckets:
            yield from bucket.parameters()


def _dtype(bucket: RecordedBucket) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, DTYPES[bucket.dtype].torch)
    return dtype


def _shapes(bucket: RecordedBucket) -> list[list[int]]:
    """The shapes of a bucket's parameters; matrices of COLUMNS if they are unknown."""
    count = bucket.nbytes // DTYPES[bucket.dtype].itemsize
    if bucket.shapes and elements(bucket.shapes) == count:
        return bucket.shapes
    rows, rest = divmod(count, COLUMNS)
    shapes = [[rows, COLUMNS]] if rows else []
    return shapes + ([[rest]] if rest else [])


class RecordedGradient(ReplayedBucket):
    """A bucket with random gradients, whose memory is bytes, so that buckets may differ in type."""

    def put_back(self, into: torch.Tensor) -> None:
        """Copy the gradient into the first bytes of `into`."""
        self._flat = into[: self.nbytes].view(self.gradient.dtype).copy_(self.gradient)


def survey_recorded(
    bench: Bench,
    spec: PlanSpec,
    recorded: RecordedStep,
    methods: Sequence[Method],
    emit: Callable[[Event], None],
    enter_phase: EnterPhase,
) -> None:
    """Measure every exchange in each round, and report the plan so far after each."""
    measurements = RecordedSurvey(bench, spec, recorded, methods)
    for _ in range(bench.spec.rounds):
        measurements.begin_round()
        for method, bucket_mb in measurements.ways():
            measurements.exchange(method, bucket_mb, enter_phase)
            if method.plain and bucket_mb is None:
                measurements.settle()
            emit(Surveyed(measurements.plan()))


class RecordedSurvey(Survey):
    """Measurements of the buckets of a recorded step.

    The step, and when its buckets are ready, are those of the record. What plain DDP's exchange
    takes of the processors is part of the recorded times, so only what a method takes beyond it
    delays backward.
    """

    def __init__(
        self, bench: Bench, spec: PlanSpec, recorded: RecordedStep, methods: Sequence[Method]
    ) -> None:
        super().__init__(bench, spec, methods)
        self._recorded = recorded
        plain = any(method.plain for method in methods)
        own_mb = bench.spec.bucket_mb
        layouts = {own_mb: recorded.buckets}
        for size in BUCKETS_MB:
            joined = merged(recorded.buckets, size)
            if plain and size > own_mb and joined not in layouts.values():
                layouts[size] = joined
        self._buckets = layouts
        for size, buckets in layouts.items():
            self._run.layouts.append(BucketLayout(size, []))
            self._replayed[size] = self._gradients(buckets)
        largest = max(bucket.nbytes for buckets in layouts.values() for bucket in buckets)
        self._memory = torch.empty(largest, dtype=torch.uint8, device=bench.device)

    def _gradients(self, buckets: Sequence[RecordedBucket]) -> list[ReplayedBucket]:
        assert isinstance(self.bench.net, RecordedParameters)
        parameters = self.bench.net.in_order()
        generator = torch.Generator().manual_seed(SEED)
        gradients: list[ReplayedBucket] = []
        for index, bucket in enumerate(buckets):
            count = bucket.nbytes // DTYPES[bucket.dtype].itemsize
            own: list[nn.Parameter] = []
            while sum(prod(parameter.shape) for parameter in own) < count:
                own.append(next(parameters))
            values = torch.randn(count, generator=generator).to(self.bench.device, _dtype(bucket))
            gradients.append(RecordedGradient(index, own, values, last=index + 1 == len(buckets)))
        return gradients

    def begin_round(self) -> None:
        """Take the recorded step as that of this round."""
        step_s, waited_s = self._recorded.step_s or 0.0, self._recorded.waited_s or 0.0
        self._add_step(step_s - waited_s)

    def _add_step(self, still_s: float) -> None:
        self._run.alone_s.append(still_s)
        for layout in self._run.layouts:
            buckets = [
                Bucket(bucket.nbytes, bucket.ready_s) for bucket in self._buckets[layout.bucket_mb]
            ]
            layout.rounds.append(LayoutRound(still_s, buckets))

    def settle(self) -> None:
        """If the record does not tell how long a step waited, take it from plain DDP's exchange.

        If not even the step is known, it is the exchange.
        """
        recorded, plain = self._recorded, self._exchanges[0]
        if recorded.step_s is not None and recorded.waited_s is not None:
            return
        buckets = self._run.layouts[0].rounds[-1].buckets
        late_s = exposed_s(buckets, plain.rounds[-1].bucket_s, [])
        still_s = late_s
        if recorded.step_s is not None:
            still_s = max(recorded.step_s - late_s, buckets[-1].ready_s)
        self._run.alone_s.pop()
        for layout in self._run.layouts:
            layout.rounds.pop()
        self._add_step(still_s)

    def _measure(self, method: Method, bucket_mb: float) -> tuple[ExchangeRound, float | None]:
        measured, sent = super()._measure(method, bucket_mb)
        own = bucket_mb == self.bench.spec.bucket_mb
        if method.plain:
            if own:
                self._plain_busy_s = measured.busy_s
            return replace(measured, busy_s=[]), sent
        pairs = zip(measured.busy_s, self._plain_busy_s, strict=False)
        extra = [max(busy_s - plain_s, 0.0) for busy_s, plain_s in pairs]
        return replace(measured, busy_s=extra), sent
