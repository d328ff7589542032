"""The phase in which a rank was late: consecutive steps, such as all from the one on in which its
GPU was throttled.

Each run of consecutive blocks of steps is tried. The one that leaves least variance within itself
and within the other steps is a phase if its mean is above 0 and above that of the others, with a
confidence that holds for all runs together (Bonferroni).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from statistics import fmean

from busbw.stats.rounds import t_quantile

LEAST_STEPS = 5
LEAST_BLOCKS = 2  # of a phase: one block may be an outlier
MOST_ALIKE = 0.9  # correlation of a block with the next
MOST_OUTSIDE = 0.2  # of the mean of a phase: a rank that is later outside is late in all steps


@dataclass(frozen=True, slots=True)
class LatePhase:
    """The steps at the places from `first` to before `after`, and the mean of their values."""

    first: int
    after: int
    us: float


def find(values: Sequence[float], ends: Sequence[int], confidence: float) -> LatePhase | None:
    """The phase in which the values of a rank are larger than 0 and than in all other steps; None
    without one. `ends` are those of the blocks, from 0 on.
    """
    sums = [0.0, *accumulate(values)]
    runs = [
        (first, after)
        for first, after in combinations(range(len(ends)), 2)
        if after - first >= LEAST_BLOCKS and _is_long(ends[first], ends[after], len(values))
    ]
    if not runs:
        return None
    best = max(runs, key=lambda run: _excess(sums, ends[run[0]], ends[run[1]]))
    if not _is_significant(_means(sums, ends), *best, (1 - confidence) / len(runs)):
        return None
    first, after = _at_steps(sums, ends, *best)
    us = fmean(values[first:after])
    outside_us = (sums[-1] - us * (after - first)) / (len(values) - after + first)
    return LatePhase(first, after, us) if outside_us <= MOST_OUTSIDE * us else None


def _is_long(first: int, after: int, steps: int) -> bool:
    """Whether there are enough steps in a phase, and outside of it."""
    return LEAST_STEPS <= after - first <= steps - LEAST_STEPS


def _excess(sums: Sequence[float], first: int, after: int) -> float:
    """By how much the variance within both parts is less than that of all, as a sum of squares; -1
    if the values in the phase are not the larger ones.
    """
    steps, inside = len(sums) - 1, after - first
    more = sums[after] - sums[first] - sums[-1] * inside / steps
    return more**2 * steps / (inside * (steps - inside)) if more > 0 else -1.0


def _means(sums: Sequence[float], ends: Sequence[int]) -> list[float]:
    """The mean of each block."""
    return [(sums[after] - sums[first]) / (after - first) for first, after in pairwise(ends)]


def _is_significant(means: Sequence[float], first: int, after: int, chance: float) -> bool:
    """Whether the blocks of a phase are above 0 and above the others, by Student's t.

    Blocks that follow each other may be alike, as noise of a busy host is: then they say less.
    """
    inside, outside = means[first:after], [*means[:first], *means[after:]]
    freedom = len(means) - 2
    if not outside or freedom < 1:
        return False
    mean, other = fmean(inside), fmean(outside)
    rest = [value - (mean if first <= at < after else other) for at, value in enumerate(means)]
    squares = sum(value**2 for value in rest)
    alike = sum(value * following for value, following in pairwise(rest)) / (squares or 1.0)
    alike = min(max(alike, 0.0), MOST_ALIKE)
    deviation = math.sqrt(squares / freedom * (1 + alike) / (1 - alike))
    limit = t_quantile(chance / 2, freedom) * deviation
    more_error = math.sqrt(1 / len(inside) + 1 / len(outside))
    return mean > limit / math.sqrt(len(inside)) and mean - other > limit * more_error


def _at_steps(
    sums: Sequence[float], ends: Sequence[int], first: int, after: int
) -> tuple[int, int]:
    """The ends of a phase to the step: each within its blocks."""
    low, high = ends[first], ends[after]
    steps = len(sums) - 1
    lows = range(ends[first - 1] + 1 if first else 0, min(ends[first + 1], high - LEAST_STEPS) + 1)
    if first:
        low = max(lows, key=lambda at: _excess(sums, at, high))
    highs = range(max(ends[after - 1], low + LEAST_STEPS), ends[min(after + 1, len(ends) - 1)])
    if after < len(ends) - 1:
        high = max(highs, key=lambda at: _excess(sums, low, at))
    return (low, high) if _is_long(low, high, steps) else (ends[first], ends[after])
