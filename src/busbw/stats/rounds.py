"""Intervals of what was measured once in each of several rounds: Student's t over the values of the
rounds.

Steps of one round follow each other and are no independent samples, so each round gives one value.
Methods take turns within a round, so a comparison of two uses the differences, or the logarithms of
the ratios, of values of the same round: what changes slowly cancels out.
"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from busbw.stats import student

CONFIDENCE = 0.95
# the ends of a ratio's interval may differ by this factor; beyond it, the rounds say nothing of use
UNCLEAR = 2.0
LARGEST_LOG = 700.0  # the exponential of more is no finite number


class Interval(NamedTuple):
    """The ends of a confidence interval, in the unit of the values."""

    low: float
    high: float


def of_mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the mean of one value per round; None for fewer than two."""
    if len(values) < 2:
        return None
    mean, freedom = fmean(values), len(values) - 1
    reach = student.quantile((1 - confidence) / 2, freedom) * stdev(values) / math.sqrt(len(values))
    return Interval(mean - reach, mean + reach)


def of_ratio(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the geometric mean of one positive ratio per round; None for fewer than
    two.
    """
    logs = of_mean([math.log(ratio) for ratio in ratios], confidence)
    return Interval(math.exp(logs.low), math.exp(min(logs.high, LARGEST_LOG))) if logs else None


def unclear(ratio: Interval | None) -> bool:
    """Whether a ratio has an interval, but one that says nothing of use."""
    return ratio is not None and ratio.high > UNCLEAR * ratio.low
