"""Which candidates of a tuning stay in the search, and what the best one gains."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeVar

from busbw.core.comparison import Verdict
from busbw.core.tuning import Choice
from busbw.stats.judging import RELEVANT, Limits, independent, verdict
from busbw.stats.rank_tests import Shift, holm, shift
from busbw.tune.types import Gain

Candidate = TypeVar("Candidate")
ALIKE = 1.01  # candidates whose times differ by less are taken for equally fast


def fastest(times_s: Mapping[Candidate, Sequence[float]], keep: int) -> list[Candidate]:
    """The `keep` candidates with the shortest median times."""
    return sorted(times_s, key=lambda candidate: median(times_s[candidate]))[:keep]


def plainest(times_s: Mapping[Choice | None, Sequence[float]]) -> Choice | None:
    """Of the fastest candidates, NCCL's own choice (None), else NCCL's number of channels, else
    the fewest: they leave room for others.
    """
    most = ALIKE * min(map(median, times_s.values()))
    alike = [choice for choice, times in times_s.items() if median(times) <= most]
    return min(alike, key=lambda choice: (choice is not None, choice.channels if choice else 0))


def gain(default_s: Sequence[float], choice_s: Sequence[float], confidence: float) -> Gain:
    """What a choice gains, from samples that were not used to choose it; `p` is of this size
    alone.
    """
    found = shift(independent(default_s), independent(choice_s), confidence)
    return Gain(
        default_s=median(default_s),
        choice_s=median(choice_s),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        p=found.p,
    )


def adjusted(ps: Sequence[float], sizes: int) -> list[float]:
    """Holm's p-values for a tuning of that many sizes, of which the rest has not been measured."""
    return holm([*ps, *[1.0] * (sizes - len(ps))])[: len(ps)]


def is_faster(found: Gain, limits: Limits) -> bool:
    """Whether the choice is faster: significant over all sizes, and by enough to matter (2 %)."""
    return verdict(Shift(found.p, found.ratio, found.low, found.high), limits) is Verdict.FASTER


def slower_than_allowed(ratios: Sequence[float]) -> bool:
    """Whether any of these ratios of times is above 1 by over 2 %."""
    return any(ratio > 1 + RELEVANT for ratio in ratios)


def together(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
