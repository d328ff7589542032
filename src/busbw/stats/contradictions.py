"""Figures of a training that contradict each other: a part larger than its whole, or a step that is
longer without the network.

They come from disturbances, such as ranks that compete for processors. No recommendation can rest
on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from busbw.stats import rounds
from busbw.stats.rounds import Interval

SLACK = 0.02  # of a step: smaller contradictions change no answer
SLACK_OF_ONE_ROUND = 0.25  # without an interval, noise can look like a smaller contradiction
ERROR = 0.05  # probability that noise alone gives a contradiction, over all bounds of a result


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with one value per round: seconds, or a `share` of alone."""

    what: str
    values: Sequence[float]
    share: bool = False

    @property
    def value(self) -> float:
        """The mean over rounds, of shares the geometric one."""
        return geometric_mean(self.values) if self.share else fmean(self.values)

    @property
    def interval(self) -> Interval | None:
        """Its interval."""
        return (rounds.of_ratio if self.share else rounds.of_mean)(self.values)


@dataclass(frozen=True, slots=True)
class Bound:
    """`figure` cannot be more than `limit`.

    Whole steps and shares are compared by ratio, and parts by difference, of which `step_s` are the
    steps. `name` is the method.
    """

    figure: Figure
    limit: Figure
    step_s: Sequence[float] = ()
    name: str = ""

    def broken(self, confidence: float) -> bool:
        """Whether the figure is more than the limit, by more than SLACK and beyond the interval
        of this confidence.
        """
        pairs = list(zip(self.figure.values, self.limit.values, strict=False))
        if self.step_s:
            differences = [value - limit for value, limit in pairs]
            excess, interval, none = (
                fmean(differences) / fmean(self.step_s),
                rounds.of_mean(differences, confidence),
                0.0,
            )
        else:
            ratios = [value / limit for value, limit in pairs]
            excess, interval, none = (
                geometric_mean(ratios) - 1,
                rounds.of_ratio(ratios, confidence),
                1.0,
            )
        if interval is None:
            return excess > SLACK_OF_ONE_ROUND
        return excess > SLACK and interval.low > none


def broken(bounds: Sequence[Bound]) -> list[Bound]:
    """The bounds that do not hold.

    The confidence of each accounts for their number (Bonferroni).
    """
    return [one for one in bounds if one.broken(1 - 2 * ERROR / len(bounds))]
