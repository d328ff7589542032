"""Which of two samples is higher, and by how much: tests and intervals that assume no distribution.

Sources: Mann and Whitney 1947 (U and its exact distribution), Hodges and Lehmann 1963 (the shift
and its interval), Holm 1979.

`sweep_test` says which rows of a sweep differ between two sets of whole runs, by Westfall and
Young's permutation of the largest statistic (1993). It permutes the labels of whole runs, and with
them what the rows of a run have in common (a warm GPU, a busy switch). The level holds over all
rows together.
"""

import itertools
import math
import random
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

import msgspec

from busbw.stats.rounds import t_quantile, t_tail

EXACT_STEPS = 50_000  # above this the normal approximation of U is used; its tails are wider
PRECISION = 1e-7  # of a shift of logarithms: finer than any timer
MAX_SPLITS = 4000  # beyond it, a fixed sample of the splits is used
ROUNDING = 1e-9


class Shift(msgspec.Struct, frozen=True):
    """How b compares with a: the two-sided `p`, the ratio b / a, and the ends of its interval, None
    for too few samples.

    In a family of tests, `p` and the interval hold over all of them: p is at most the level where
    the interval excludes 1. `alone` is the interval of this test alone.
    """

    p: float
    ratio: float
    low: float | None = None
    high: float | None = None
    alone: tuple[float, float] | None = None


def shift(a: Sequence[float], b: Sequence[float], confidence: float, family: int = 1) -> Shift:
    """Mann-Whitney's test of two samples of positive numbers, and Hodges and Lehmann's ratio
    with its interval, at `confidence` over a family of so many tests (Bonferroni).
    """
    a_logs, b_logs = sorted(map(math.log, a)), sorted(map(math.log, b))
    pairs = len(a_logs) * len(b_logs)
    lower_middle = _difference(a_logs, b_logs, (pairs + 1) // 2)
    upper_middle = _difference(a_logs, b_logs, pairs // 2 + 1)
    p = min(1.0, 2 * family * min(p_higher(a_logs, b_logs), p_higher(b_logs, a_logs)))
    alone = _interval(a_logs, b_logs, level(confidence))
    together = alone if family == 1 else _interval(a_logs, b_logs, level(confidence) / family)
    low, high = together or (None, None)
    return Shift(p, math.exp((lower_middle + upper_middle) / 2), low, high, alone)


def _interval(a: Sequence[float], b: Sequence[float], rate: float) -> tuple[float, float] | None:
    """The interval of the ratio that misses it with at most this probability; from ascending
    logarithms.
    """
    omitted = _omitted(len(a), len(b), rate / 2)
    if omitted is None:
        return None
    low = _difference(a, b, omitted + 1)
    return math.exp(low), math.exp(_difference(a, b, len(a) * len(b) - omitted))


def p_higher(a: Sequence[float], b: Sequence[float]) -> float:
    """The one-sided p-value (Mann-Whitney) that b is higher than a; both ascending.

    Equal values count against it, so that the level holds on clocks of any resolution.
    """
    return tail(len(a), len(b), _pairs_up_to(a, b, 0.0))


def tail(m: int, n: int, u: int) -> float:
    """P(U <= u) for samples of m and n that come from one distribution without ties."""
    if u >= m * n:
        return 1.0
    if 2 * u >= m * n:
        return 1.0 - tail(m, n, m * n - u - 1)
    small, large = sorted((m, n))
    if small * small * large <= EXACT_STEPS:
        return _cumulated(small, large)[u] / math.comb(m + n, m) if u >= 0 else 0.0
    z = (u + 0.5 - m * n / 2) / math.sqrt(m * n * (m + n + 1) / 12)
    return math.erfc(-z / math.sqrt(2)) / 2


@lru_cache(maxsize=1024)
def _cumulated(m: int, n: int) -> tuple[int, ...]:
    """Arrangements of m and n values with U at most 0, 1, ... m n / 2: the coefficients of the
    Gaussian binomial, summed.
    """
    counts = [1] + [0] * (m * n // 2)
    for i in range(1, m + 1):
        for u in range(len(counts) - 1, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, len(counts)):
            counts[u] += counts[u - i]
    return tuple(itertools.accumulate(counts))


def _omitted(m: int, n: int, probability: float) -> int | None:
    """How many of the m n differences an interval may omit on each side.

    The interval misses the shift on that side with at most this `probability`; None if it would
    even with all differences.
    """
    if tail(m, n, 0) > probability:
        return None
    return bisect_right(range(m * n // 2), probability, key=lambda u: tail(m, n, u)) - 1


def _pairs_up_to(a: Sequence[float], b: Sequence[float], limit: float) -> int:
    """The number of pairs whose b - a is at most `limit`; both ascending."""
    if len(a) <= len(b):
        return sum(bisect_right(b, value + limit) for value in a)
    return len(a) * len(b) - sum(bisect_left(a, value - limit) for value in b)


def _difference(a: Sequence[float], b: Sequence[float], rank: int) -> float:
    """The rank-th smallest (from 1) of all differences b - a; both ascending.

    By bisection: a table of all pairs would be too large.
    """
    low, high = b[0] - a[-1], b[-1] - a[0]
    while high - low > PRECISION:
        middle = (low + high) / 2
        if _pairs_up_to(a, b, middle) >= rank:
            high = middle
        else:
            low = middle
    return high


def holm(ps: Sequence[float]) -> list[float]:
    """The adjusted p-values of a family: any false rejection is at most as likely as the level."""
    order = sorted(range(len(ps)), key=ps.__getitem__)
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def sign_test(higher: int, lower: int) -> float:
    """The two-sided p-value of these counts of equally likely signs; 1 without any."""
    count, fewer = higher + lower, min(higher, lower)
    arrangements = sum(math.comb(count, k) for k in range(fewer + 1))
    return min(1.0, float(2 * arrangements / 2**count))


def level(confidence: float) -> float:
    """The error rate of a confidence, without rounding error: 0.1 for 0.9."""
    return round(1 - confidence, 12)


def fewest(family: int, rate: float) -> int:
    """The fewest samples per side that can show a difference in a family of that many tests.

    With so many, the most extreme order has a p-value of at most `rate`.
    """
    counts = itertools.count(1)
    return next(count for count in counts if 2 * family <= rate * math.comb(2 * count, count))


def sweep_test(rows: Sequence[Sequence[float]], first: int, *, two_sided: bool) -> list[float]:
    """Each row's p-value, adjusted for all rows.

    rows[r][i] is the logarithm of row r's time in run i; the `first` runs are the baseline. The
    test is two-sided, or for the alternative that the other runs are slower. With fewer than 3 runs
    all are 1.
    """
    runs = len(rows[0]) if rows else 0
    if runs < 3 or not 0 < first < runs:
        return [1.0] * len(rows)
    centered = [_centered(row) for row in rows]
    squares = [_sum_of_squares(row) for row in centered]
    observed = _statistics(centered, squares, range(first), two_sided)
    largest = [
        max(_statistics(centered, squares, split, two_sided)) for split in _splits(runs, first)
    ]
    return [_share_reaching(statistic, largest) for statistic in observed]


def sweep_shifts(rows: Sequence[Sequence[float]], first: int, confidence: float) -> list[Shift]:
    """Each row's shift, with the p-value of `sweep_test` and the interval that excludes 1 where it
    is at most the level.
    """
    centered = [_centered(row) for row in rows]
    squares = [_sum_of_squares(row) for row in centered]
    largest = [
        max(_statistics(centered, squares, split, True)) for split in _splits(len(rows[0]), first)
    ]
    largest.sort(reverse=True)
    limit = largest[int(level(confidence) * len(largest))] * (1 + ROUNDING)
    shifts = []
    for difference, error in _effects(centered, squares, range(first)):
        p = _share_reaching(abs(difference) / error, largest)
        low, high = difference - limit * error, difference + limit * error
        shifts.append(Shift(p, math.exp(difference), math.exp(low), math.exp(high)))
    return shifts


def spread_test(rows: Sequence[Sequence[float]], first: int, confidence: float) -> list[Shift]:
    """Each row's shift by Student's t, for fewer runs than `sweep_test` can judge.

    rows[r][i] is the logarithm of row r's time in run i; the `first` runs are the baseline. The
    standard deviation is the row's own within the two sides, and no less than the median of all
    rows: a few runs may agree by chance. The p-values and intervals are adjusted for all rows
    (Bonferroni), which holds however the rows of a run vary together.
    """
    runs = len(rows[0]) if rows else 0
    if runs < 3 or not 0 < first < runs:
        return [Shift(1.0, math.exp(_difference_of_means(row, first))) for row in rows]
    freedom = runs - 2
    deviations = [_deviation_within(row, first) for row in rows]
    typical = statistics.median(deviations)
    rate = level(confidence) / 2
    shifts = []
    for row, deviation in zip(rows, deviations, strict=True):
        difference = _difference_of_means(row, first)
        error = max(deviation, typical, ROUNDING) * math.sqrt(1 / first + 1 / (runs - first))
        p = min(1.0, 2 * len(rows) * t_tail(abs(difference) / error, freedom))
        together, alone = (
            t_interval(difference, error, freedom, rate / family) for family in (len(rows), 1)
        )
        shifts.append(Shift(p, math.exp(difference), *together, alone))
    return shifts


def t_interval(log_ratio: float, error: float, freedom: int, rate: float) -> tuple[float, float]:
    """The interval of a ratio whose logarithm has this standard error (Student's t); it misses the
    ratio on either side with the probability `rate`.
    """
    half = t_quantile(rate, freedom) * error
    return math.exp(log_ratio - half), math.exp(log_ratio + half)


def _difference_of_means(row: Sequence[float], first: int) -> float:
    return statistics.fmean(row[first:]) - statistics.fmean(row[:first])


def _deviation_within(row: Sequence[float], first: int) -> float:
    """The standard deviation of a row's values about the means of their sides."""
    sides = _centered(row[:first]), _centered(row[first:])
    return math.sqrt(sum(map(_sum_of_squares, sides)) / (len(row) - 2))


def _centered(row: Sequence[float]) -> list[float]:
    mean = statistics.fmean(row)
    return [value - mean for value in row]


def _sum_of_squares(row: Sequence[float]) -> float:
    return math.fsum(value * value for value in row)


def _share_reaching(statistic: float, largest: Sequence[float]) -> float:
    """The share of splits whose largest statistic is at least this one, apart from rounding."""
    limit = statistic - abs(statistic) * ROUNDING
    return sum(value >= limit for value in largest) / len(largest)


def fewest_chance(first: int, second: int, *, two_sided: bool) -> float:
    """The smallest possible p-value of `first` runs compared with `second`."""
    mirrored = 2 if two_sided and first == second else 1
    return mirrored / math.comb(first + second, first)


def _splits(runs: int, first: int) -> Iterator[Sequence[int]]:
    """Choices of a baseline among the runs: all, or the actual one and a fixed sample."""
    if math.comb(runs, first) <= MAX_SPLITS:
        yield from combinations(range(runs), first)
        return
    yield range(first)
    generator = random.Random(1)
    for _ in range(MAX_SPLITS - 1):
        yield generator.sample(range(runs), first)


def _statistics(
    rows: Sequence[Sequence[float]], squares: Sequence[float], split: Sequence[int], two_sided: bool
) -> list[float]:
    """Each row's difference of means over its error; its amount if two-sided."""
    effects = _effects(rows, squares, split)
    if two_sided:
        return [abs(difference) / error for difference, error in effects]
    return [difference / error for difference, error in effects]


def _effects(
    rows: Sequence[Sequence[float]], squares: Sequence[float], split: Sequence[int]
) -> list[tuple[float, float]]:
    """Each row's difference of means, and its standard deviation within the two sets.

    The median deviation of all rows is added to each, so that a row whose few runs agree by chance
    does not dominate the maximum.
    """
    runs, first = len(rows[0]), len(split)
    differences, deviations = [], []
    for row, square in zip(rows, squares, strict=True):
        # values are centered, so those outside the split sum to the opposite
        total = sum(map(row.__getitem__, split))
        between = total * total * (1 / first + 1 / (runs - first))
        differences.append(-total * (1 / first + 1 / (runs - first)))
        deviations.append(math.sqrt(max(0.0, square - between) / (runs - 2)))
    typical = statistics.median(deviations)
    errors = [max(deviation + typical, ROUNDING) for deviation in deviations]
    return list(zip(differences, errors, strict=True))
