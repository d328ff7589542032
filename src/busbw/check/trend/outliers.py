"""The statistics that name a link whose errors grew unlike those of the others. No I/O."""

import math
from collections.abc import Sequence

from busbw.check.trend.types import Growth, OutlierLink

FALSE_ALARM_CHANCE = 0.01  # of naming a link where all links of a kind are alike
MIN_ERRORS = 5  # a link with fewer is not named
MIN_LINKS = 3  # with fewer of a kind there is nothing to compare with


def find_outliers(all_alike: Sequence[Growth]) -> list[OutlierLink]:
    """The links that differ, from the growths of one counter on all links of one kind.

    If all links had errors at the same rate, an error would be on a link with the probability p,
    its share of the hours. A link is odd if Chernoff's bound for as many errors as it has, or more,
    times the number of links is below FALSE_ALARM_CHANCE. It is then left out, and the others are
    judged again.
    """
    remaining, odd = list(all_alike), list[OutlierLink]()
    while len(remaining) >= MIN_LINKS:
        fastest = max(remaining, key=lambda growth: (growth.by / growth.hours, growth.by))
        others = [growth for growth in remaining if growth is not fastest]
        total = sum(growth.by for growth in remaining)
        share = fastest.hours / sum(growth.hours for growth in remaining)
        chance = len(remaining) * binomial_tail_bound(fastest.by, total, share)
        if fastest.by < MIN_ERRORS or chance >= FALSE_ALARM_CHANCE:
            break
        by = [growth.by for growth in others]
        odd.append(
            OutlierLink(
                growth=fastest,
                others=len(others),
                others_by=sum(by),
                others_most=max(by),
                chance=chance,
            )
        )
        remaining = others
    return odd


def binomial_tail_bound(count: int, total: int, share: float) -> float:
    """An upper bound for P(X >= count), X binomial with `total` trials of probability `share`.

    Chernoff's bound: exp(-total KL(count/total, share)).
    """
    if not total or count <= total * share:
        return 1.0
    part = count / total
    other = (1 - part) * math.log((1 - part) / (1 - share)) if part < 1 else 0.0
    return math.exp(-total * (part * math.log(part / share) + other))
