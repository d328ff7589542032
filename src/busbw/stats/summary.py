"""The spread of a cell's samples, as defined by the per-iteration report of nccl-tests 2.19.6."""

import math
from collections.abc import Sequence

import msgspec


class Summary(msgspec.Struct, frozen=True):
    """Statistics over `count` samples, in seconds; cv is the standard deviation over the mean (a
    fraction, 0 where the mean is 0).
    """

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
    """The smallest value of `ordered` (ascending, not empty) with at least `percent` % of the
    samples at or below it.
    """
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * percent // 100) - 1))]


def summary(samples_s: Sequence[float]) -> Summary:
    """Summary of one sample (seconds) or more.

    p50 is the upper median, p95 and p99 are nearest-rank, the standard deviation is the
    population's.
    """
    ordered = sorted(samples_s)
    mean = math.fsum(ordered) / len(ordered)
    stdev = math.sqrt(math.fsum((sample - mean) ** 2 for sample in ordered) / len(ordered))
    p50_s, p95_s, p99_s = (
        ordered[len(ordered) // 2],
        nearest_rank(ordered, 95),
        nearest_rank(ordered, 99),
    )
    cv = stdev / mean if mean > 0 else 0.0
    return Summary(len(ordered), ordered[0], ordered[-1], mean, p50_s, p95_s, p99_s, stdev, cv)
