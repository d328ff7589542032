"""Intervals of figures that were measured once in each of several rounds, by Student's t.

Steps of one round follow each other and are not independent samples, so each round gives one value.
Methods take turns within a round, so a comparison of two uses the differences, or the logarithms of
the ratios, of values of the same round: what changes slowly cancels out.

`t_tail` and `t_quantile` are those of Student's t distribution. Source: Abramowitz and Stegun,
Handbook of Mathematical Functions, 26.7.3 and 26.7.4.

`broken_bounds` finds figures of a training that contradict each other: a part larger than its
whole, or a step that is longer without the network. They come from disturbances, such as ranks that
compete for processors. No recommendation can rest on them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, geometric_mean
from typing import NamedTuple

QUANTILE_PRECISION = 1e-9
CONFIDENCE = 0.95
# The ends of a ratio's interval may differ by this factor; beyond it, the rounds do not say enough.
MAX_END_RATIO = 2.0
LARGEST_LOG = 700.0  # the exponential of more is no finite number
CONTRADICTION_SHARE = 0.02  # of a step: smaller contradictions change no answer
# Without an interval, noise can look like a smaller contradiction
ONE_ROUND_CONTRADICTION_SHARE = 0.25
# Probability that noise alone gives a contradiction, over all bounds of a result
FALSE_ALARM_CHANCE = 0.05


def t_tail(t: float, freedom: int) -> float:
    """P(T > t) for this many degrees of freedom, at least 1."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(odd, freedom - 1, 2):
        total += term
        term *= cosine2 * (k + 1) / (k + 2)
    within = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    beyond = max(0.0, (1 - within) / 2)
    return beyond if t >= 0 else 1 - beyond


@cache  # a table asks for a few of them, hundreds of times
def t_quantile(share: float, freedom: int) -> float:
    """The t with P(T > t) = share, for a share above 0 and at most one half."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > share:
        low, high = high, 2 * high
    while high - low > QUANTILE_PRECISION * high:
        middle = (low + high) / 2
        if t_tail(middle, freedom) > share:
            low = middle
        else:
            high = middle
    return high


class Interval(NamedTuple):
    """The ends of a confidence interval, in the unit of the values."""

    low: float
    high: float


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the mean of one value per round; None for fewer than two."""
    if len(values) < 2:
        return None
    mean, freedom = fmean(values), len(values) - 1
    # statistics.stdev is exact, for which a thousand ranks would wait a second
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / freedom / len(values))
    half_width = t_quantile((1 - confidence) / 2, freedom) * error
    return Interval(mean - half_width, mean + half_width)


def ratio_interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the geometric mean of one positive ratio per round; None below two."""
    logs = mean_interval([math.log(ratio) for ratio in ratios], confidence)
    if logs is None:
        return None
    return Interval(math.exp(logs.low), math.exp(min(logs.high, LARGEST_LOG)))


def is_too_wide(ratio: Interval | None) -> bool:
    """Whether a ratio has an interval that is too wide to be of use."""
    return ratio is not None and ratio.high > MAX_END_RATIO * ratio.low


@dataclass(frozen=True, slots=True)
class RoundValues:
    """A figure with one value per round: seconds, or a `share` of a step alone.

    `name` is its name in sentences.
    """

    name: str
    values: Sequence[float]
    share: bool = False

    @property
    def value(self) -> float:
        """The mean over rounds; the geometric mean for shares."""
        return geometric_mean(self.values) if self.share else fmean(self.values)

    @property
    def interval(self) -> Interval | None:
        """The interval of `value`; None for fewer than two rounds."""
        return ratio_interval(self.values) if self.share else mean_interval(self.values)


@dataclass(frozen=True, slots=True)
class Bound:
    """The statement that `figure` cannot be more than `limit`.

    Whole steps and shares are compared by ratio. Parts of steps are compared by difference;
    `step_s` are the seconds of the steps. `name` is the method.
    """

    figure: RoundValues
    limit: RoundValues
    step_s: Sequence[float] = ()
    name: str = ""

    def is_broken(self, confidence: float) -> bool:
        """Whether the figure is more than the limit, by more than CONTRADICTION_SHARE and beyond
        the interval of this confidence.
        """
        pairs = list(zip(self.figure.values, self.limit.values, strict=False))
        if self.step_s:
            differences = [value - limit for value, limit in pairs]
            excess = fmean(differences) / fmean(self.step_s)
            interval, equal = mean_interval(differences, confidence), 0.0
        else:
            ratios = [value / limit for value, limit in pairs]
            excess = geometric_mean(ratios) - 1
            interval, equal = ratio_interval(ratios, confidence), 1.0
        if interval is None:
            return excess > ONE_ROUND_CONTRADICTION_SHARE
        return excess > CONTRADICTION_SHARE and interval.low > equal


def broken_bounds(bounds: Sequence[Bound]) -> list[Bound]:
    """The bounds that do not hold.

    The confidence of each accounts for their number (Bonferroni).
    """
    return [bound for bound in bounds if bound.is_broken(1 - 2 * FALSE_ALARM_CHANCE / len(bounds))]
