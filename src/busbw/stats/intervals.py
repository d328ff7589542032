"""Confidence intervals of a median from order statistics, and the summary of a cell's samples.

The intervals assume nothing about the shape of the distribution. Sources: the exact interval
between two order statistics (binomial), Conover 1999, 3.2; interpolation between neighboring ones
so that the coverage is the requested one, Hettmansperger and Sheather 1986; the loss by
autocorrelation, n_eff = n (1 - r) / (1 + r), Zwiers and von Storch 1995. `summary` is defined as in
the per-iteration report of nccl-tests 2.19.6.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from statistics import NormalDist
from typing import Annotated

import msgspec
from msgspec import Meta

EXACT_UP_TO = 400  # beyond it the normal approximation is right to 1e-4
MIN_CORRELATION = 0.2  # weaker correlation widens an interval less than its own uncertainty


@lru_cache(maxsize=4096)
def coverage(n: int, k: int) -> float:
    """Probability that the median lies between the k-th smallest and k-th largest of n
    independent samples (0 for k > n/2).
    """
    if 2 * k > n:
        return 0.0
    if n <= EXACT_UP_TO:
        return 1.0 - 2.0 * float(sum(math.comb(n, i) for i in range(k)) / 2**n)
    return 1.0 - 2.0 * NormalDist(n / 2, math.sqrt(n) / 2).cdf(k - 0.5)


@lru_cache(maxsize=4096)
def depth(n: int, confidence: float) -> float | None:
    """The ranks, from either end and with a fraction, of the two order statistics that bound the
    median's interval; None for too few samples.
    """
    if coverage(n, 1) < confidence:
        return None
    # the largest whole rank that still covers
    rank = bisect_left(range(1, n // 2 + 1), True, key=lambda k: coverage(n, k) < confidence)
    outer, inner = coverage(n, rank), coverage(n, rank + 1)
    share = (outer - confidence) / (outer - inner)
    # Linear interpolation would cover too little; this weight is right for symmetric distributions.
    weight = (n - rank) * share / (rank + (n - 2 * rank) * share)
    return rank + min(weight, 1.0)


def least_samples(confidence: float) -> int:
    """The fewest samples that can have an interval: 6 for 95 %, 8 for 99 %."""
    return next(n for n in itertools.count(2) if coverage(n, 1) >= confidence)


def interval(samples: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Interval of the median of samples in the order in which they were taken; None for too few.

    If neighbors are correlated (lag 1, above 0.2 and significant), it is as wide as that of a
    smaller number of independent samples.
    """
    n, r = len(samples), correlation(samples)
    independent = n
    if r > max(MIN_CORRELATION, 2 / math.sqrt(n or 1)):
        independent = int(n * (1 - r) / (1 + r))
    rank = depth(independent, confidence)
    if rank is None:
        return None
    rank = rank * (n + 1) / (independent + 1)  # the same share of the samples
    ascending = sorted(samples)
    mirrored = [-value for value in reversed(ascending)]
    return _order_statistic(ascending, rank), -_order_statistic(mirrored, rank)


def _order_statistic(ordered: Sequence[float], rank: float) -> float:
    """The value at a rank from 1 on, interpolated where the rank has a fraction."""
    rank = max(rank, 1.0)
    lower_rank = int(rank)
    low, high = ordered[lower_rank - 1], ordered[min(lower_rank, len(ordered) - 1)]
    return low + (high - low) * (rank - lower_rank)


def correlation(samples: Sequence[float]) -> float:
    """Lag-1 autocorrelation of the samples' ranks, which outliers do not dominate.

    0 for fewer than 8 samples, or if all are equal.
    """
    n = len(samples)
    if n < 8:
        return 0.0
    mean = (n - 1) / 2
    offsets = [rank - mean for rank in _ranks(samples)]
    total = math.fsum(map(mul, offsets, offsets))
    return math.fsum(map(mul, offsets, offsets[1:])) / total if total else 0.0


def _ranks(samples: Sequence[float]) -> list[float]:
    """The rank of each sample in ascending order, from 0; equal samples get their mean rank."""
    ascending, n = sorted(samples), len(samples)
    last = dict(zip(ascending, range(n), strict=True))
    first = dict(zip(reversed(ascending), range(n - 1, -1, -1), strict=True))
    return [(first[sample] + last[sample]) / 2 for sample in samples]


def quantile_interval(
    samples: Sequence[float], share: float, confidence: float
) -> tuple[float, float] | None:
    """Interval of the quantile below which `share` of the samples lie, by the normal
    approximation; None for too few samples.
    """
    ordered, n = sorted(samples), len(samples)
    half_width = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n * share * (1 - share))
    low, high = math.floor(n * share - half_width), math.ceil(n * share + half_width) + 1
    return (ordered[low - 1], ordered[high - 1]) if low >= 1 and high <= n else None


class Summary(msgspec.Struct, frozen=True):
    """Statistics of `count` samples in seconds."""

    count: int
    min_s: float
    max_s: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    stdev_s: float
    cv: Annotated[
        float,
        Meta(description="the standard deviation over the mean, a fraction; 0 if the mean is 0"),
    ]


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value of `ordered` with at least `percent` % of the samples at or below it.

    `ordered` is ascending and not empty.
    """
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[min(len(ordered), max(1, rank)) - 1]


def summary(samples_s: Sequence[float]) -> Summary:
    """Summary of at least one sample (seconds).

    p50 is the upper median, p95 and p99 are nearest-rank, the standard deviation is the
    population's.
    """
    ordered = sorted(samples_s)
    count = len(ordered)
    mean_s = math.fsum(ordered) / count
    stdev_s = math.sqrt(math.fsum((sample - mean_s) ** 2 for sample in ordered) / count)
    return Summary(
        count=count,
        min_s=ordered[0],
        max_s=ordered[-1],
        mean_s=mean_s,
        p50_s=ordered[count // 2],
        p95_s=nearest_rank(ordered, 95),
        p99_s=nearest_rank(ordered, 99),
        stdev_s=stdev_s,
        cv=stdev_s / mean_s if mean_s > 0 else 0.0,
    )
