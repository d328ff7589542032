"""Confidence intervals of a median from order statistics: no assumption about the shape of the distribution.

Sources: the exact interval between two order statistics (binomial), Conover 1999, 3.2; interpolation between neighbouring ones so that the
coverage is the one asked for and not the next above it, Hettmansperger and Sheather 1986; the loss by autocorrelation as n_eff = n (1 - r)
/ (1 + r), Zwiers and von Storch 1995.
"""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

EXACT_UP_TO = 400  # beyond it the normal approximation is right to 1e-4
LEAST_CORRELATION = 0.2  # weaker correlation widens an interval less than its own uncertainty


@lru_cache(maxsize=4096)
def coverage(n: int, k: int) -> float:
    """Probability that the median lies between the k-th smallest and k-th largest of n independent samples (0 for k > n/2)."""
    if 2 * k > n:
        return 0.0
    if n <= EXACT_UP_TO:
        return 1.0 - 2.0 * float(sum(math.comb(n, i) for i in range(k)) / 2**n)
    return 1.0 - 2.0 * NormalDist(n / 2, math.sqrt(n) / 2).cdf(k - 0.5)


@lru_cache(maxsize=4096)
def depth(n: int, confidence: float) -> float | None:
    """How many order statistics deep an interval with this coverage lies, fractions interpolated; None where n samples are too few."""
    if coverage(n, 1) < confidence:
        return None
    low, high = 1, n // 2
    while low < high:  # the deepest whole k that still covers
        middle = (low + high + 1) // 2
        low, high = (middle, high) if coverage(n, middle) >= confidence else (low, middle - 1)
    outer, inner = coverage(n, low), coverage(n, low + 1)
    share = (outer - confidence) / (outer - inner)
    # Interpolating linearly would cover too little: this is the weight that is right for symmetric distributions.
    weight = (n - low) * share / (low + (n - 2 * low) * share)
    return low + min(weight, 1.0)


def least_samples(confidence: float) -> int:
    """The fewest samples that can have an interval: 6 for 95 %, 8 for 99 %."""
    n = 2
    while coverage(n, 1) < confidence:
        n += 1
    return n


def median(ordered: Sequence[float]) -> float:
    """The middle of ascending values; the mean of the two in the middle where their number is even."""
    n = len(ordered)
    return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2


def interval(samples: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Interval of the median of samples in the order in which they were taken; None where they are too few.

    Where neighbours in time are alike (lag-1 correlation above 0.2 and not by chance) it is as wide as fewer samples would make it.
    """
    n = len(samples)
    ordered = sorted(samples)
    alike = correlation(samples)
    effective = int(n * (1 - alike) / (1 + alike)) if alike > max(LEAST_CORRELATION, 2 / math.sqrt(n or 1)) else n
    deep = depth(effective, confidence)
    if deep is None:
        return None
    at = deep * (n + 1) / (effective + 1)  # the same share of the samples
    return _between(ordered, at), -_between([-value for value in reversed(ordered)], at)


def _between(ordered: Sequence[float], position: float) -> float:
    """The order statistic at a fractional position counted from 1."""
    position = max(position, 1.0)
    whole = int(position)
    low = ordered[whole - 1]
    return low + (ordered[min(whole, len(ordered) - 1)] - low) * (position - whole)


def correlation(samples: Sequence[float]) -> float:
    """Lag-1 autocorrelation of the samples' ranks, which outliers do not dominate; 0 for fewer than 8 or equal samples."""
    n = len(samples)
    if n < 8:
        return 0.0
    ranks = _ranks(samples)
    mean = (n - 1) / 2
    total = math.fsum((rank - mean) ** 2 for rank in ranks)
    if not total:
        return 0.0
    return math.fsum((a - mean) * (b - mean) for a, b in itertools.pairwise(ranks)) / total


def _ranks(samples: Sequence[float]) -> list[float]:
    """Position of each sample among all, from 0; equal ones share the mean of theirs."""
    order = sorted(range(len(samples)), key=samples.__getitem__)
    ranks = [0.0] * len(samples)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and samples[order[end + 1]] == samples[order[start]]:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2
        start = end + 1
    return ranks


def quantile_interval(samples: Sequence[float], share: float, confidence: float) -> tuple[float, float] | None:
    """Interval of a quantile (`share` of the samples lie below it) by the normal approximation; None where they are too few."""
    ordered, n = sorted(samples), len(samples)
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n * share * (1 - share))
    low, high = math.floor(n * share - reach), math.ceil(n * share + reach) + 1
    return (ordered[low - 1], ordered[high - 1]) if low >= 1 and high <= n else None
