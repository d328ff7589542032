"""Which of several things measured in turn is the fastest, and which may be as fast."""

from collections.abc import Mapping, Sequence
from statistics import median

from busbw.stats.judging import Limits, relevant
from busbw.stats.rank_tests import Shift, shift

LIMITS = Limits()


def fastest(times: Mapping[str, Sequence[float]]) -> tuple[str, tuple[str, ...]]:
    """The name with the smallest median, and the others that may be as fast.

    `times` has the observations of each, one or more.
    """
    best = min(times, key=lambda name: median(times[name]))
    others = [name for name in times if name != best]
    return best, tuple(name for name in others if not _is_slower(times, best, name))


def slower(times: Mapping[str, Sequence[float]], best: str, other: str) -> Shift:
    """How the other's times compare with the best's, with an interval that holds over all."""
    return shift(times[best], times[other], LIMITS.confidence, max(len(times) - 1, 1))


def _is_slower(times: Mapping[str, Sequence[float]], best: str, other: str) -> bool:
    change = slower(times, best, other)
    return change.p <= LIMITS.level and change.ratio >= relevant(LIMITS)
