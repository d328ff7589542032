"""Which of two samples lies higher, and by how much: tests and intervals that suppose no distribution. Standard library alone.

Sources: Mann and Whitney 1947 (U and its exact distribution), Hodges and Lehmann 1963 (the shift and its interval), Holm 1979.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache

import msgspec

EXACT_STEPS = 50_000  # beyond these the normal approximation of U is used, whose tails are the wider ones
PRECISION = 1e-7  # of a shift of logarithms: finer than any timer


class Shift(msgspec.Struct, frozen=True):
    """How b lies to a: `p` two-sided, the ratio b / a, and its interval, None where no number of these samples gives one so sure."""

    p: float
    ratio: float
    low: float | None
    high: float | None


def shift(a: Sequence[float], b: Sequence[float], confidence: float) -> Shift:
    """Mann-Whitney's test of two samples of positive numbers, and Hodges and Lehmann's ratio with its interval at `confidence`.

    Equal values count against a difference on either side, so that the stated level holds on clocks of any resolution.
    """
    first, second = sorted(map(math.log, a)), sorted(map(math.log, b))
    pairs = len(first) * len(second)
    higher = tail(len(first), len(second), _at_most(first, second, 0.0))
    lower = tail(len(first), len(second), _at_most(second, first, 0.0))
    middle = (_difference(first, second, (pairs + 1) // 2) + _difference(first, second, pairs // 2 + 1)) / 2
    outside = _outside(len(first), len(second), level(confidence) / 2)
    low = high = None
    if outside is not None:
        low = math.exp(_difference(first, second, outside + 1))
        high = math.exp(_difference(first, second, pairs - outside))
    return Shift(min(1.0, 2 * min(higher, lower)), math.exp(middle), low, high)


def tail(m: int, n: int, u: int) -> float:
    """P(U <= u) for samples of m and n that come from one distribution without ties."""
    if 2 * u >= m * n:
        return 1.0 if u >= m * n else 1.0 - tail(m, n, m * n - u - 1)
    small, large = sorted((m, n))
    if small * small * large <= EXACT_STEPS:
        return _cumulated(small, large)[u] / math.comb(m + n, m) if u >= 0 else 0.0
    z = (u + 0.5 - m * n / 2) / math.sqrt(m * n * (m + n + 1) / 12)
    return math.erfc(-z / math.sqrt(2)) / 2


@lru_cache(maxsize=1024)
def _cumulated(m: int, n: int) -> tuple[int, ...]:
    """Arrangements of m and n values with U at most 0, 1, ... m n / 2: the coefficients of the Gaussian binomial, summed."""
    counts = [1] + [0] * (m * n // 2)
    for i in range(1, m + 1):
        for u in range(len(counts) - 1, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, len(counts)):
            counts[u] += counts[u - i]
    total = 0
    return tuple(total := total + count for count in counts)


def _outside(m: int, n: int, share: float) -> int | None:
    """How many of the m n differences an interval may leave out on a side, to miss the shift there with a chance of at most `share`."""
    if tail(m, n, 0) > share:
        return None
    return bisect_right(range(m * n // 2), share, key=lambda u: tail(m, n, u)) - 1


def _at_most(a: Sequence[float], b: Sequence[float], limit: float) -> int:
    """Pairs whose b - a is at most `limit`; both ascending."""
    if len(a) <= len(b):
        return sum(bisect_right(b, value + limit) for value in a)
    return len(a) * len(b) - sum(bisect_left(a, value - limit) for value in b)


def _difference(a: Sequence[float], b: Sequence[float], rank: int) -> float:
    """The rank-th smallest (from 1) of all differences b - a, by halving the range it lies in: no table of all pairs is made."""
    low, high = b[0] - a[-1], b[-1] - a[0]
    while high - low > PRECISION:
        middle = (low + high) / 2
        if _at_most(a, b, middle) >= rank:
            high = middle
        else:
            low = middle
    return high


def holm(ps: Sequence[float]) -> list[float]:
    """p-values of one family, adjusted: below a level, the chance that any of those rejected is false is at most that level."""
    order = sorted(range(len(ps)), key=ps.__getitem__)
    adjusted, largest = [0.0] * len(ps), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = largest
    return adjusted


def sign_test(higher: int, lower: int) -> float:
    """The two-sided p-value of so many signs, where either is as likely; 1 without any."""
    count, fewer = higher + lower, min(higher, lower)
    as_uneven = sum(math.comb(count, k) for k in range(fewer + 1))
    return min(1.0, float(2 * as_uneven / 2**count))


def level(confidence: float) -> float:
    """The error rate behind a confidence: 0.1 of 0.9, where the difference alone would be a little less."""
    return round(1 - confidence, 12)


def fewest(family: int, rate: float) -> int:
    """Samples a side from which the most extreme order has a p-value of `rate` at most, over a family of so many tests."""
    count = 1
    while 2 * family > rate * math.comb(2 * count, count):
        count += 1
    return count
