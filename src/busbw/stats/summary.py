"""The spread of one cell's samples, with the definitions that nccl-tests 2.19.6 uses for its per-iteration report."""

import math
from collections.abc import Sequence

import msgspec

from busbw.core.errors import UsageError


class Summary(msgspec.Struct, frozen=True):
    """Statistics over `count` samples, in seconds; cv is the standard deviation over the mean (a fraction, 0 where the mean is 0)."""

    count: int
    min_s: float
    max_s: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    stdev_s: float
    cv: float


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest of `ordered` (ascending, not empty) with at least `percent` % of the samples at or below it."""
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * percent // 100) - 1))]


def summary(samples_s: Sequence[float], skip: int = 0) -> Summary:
    """Summary of the samples (seconds) after the first `skip`; UsageError when none are left.

    p50 is the upper median, p95 and p99 are nearest-rank, the standard deviation is the population's.
    """
    ordered = sorted(samples_s[skip:])
    if not ordered:
        raise UsageError(f"statistics: no sample left of {len(samples_s)} when the first {skip} are skipped", "give a smaller -K")
    mean = math.fsum(ordered) / len(ordered)
    stdev = math.sqrt(math.fsum((sample - mean) ** 2 for sample in ordered) / len(ordered))
    return Summary(
        count=len(ordered),
        min_s=ordered[0],
        max_s=ordered[-1],
        mean_s=mean,
        p50_s=ordered[len(ordered) // 2],
        p95_s=nearest_rank(ordered, 95),
        p99_s=nearest_rank(ordered, 99),
        stdev_s=stdev,
        cv=stdev / mean if mean > 0 else 0.0,
    )
