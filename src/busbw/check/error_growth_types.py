"""How the error counts of links grew between snapshots, and which link grew unlike the others.

Pure.
"""

import math
from collections.abc import Sequence

import msgspec

ALPHA = 0.01  # chance of naming any of the links of a kind where all are alike
FEW = 5  # errors that name no link
FEWEST_LINKS = 3


class Growth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One error counter of one link of a host between its first and its last snapshot, `hours`
    apart.

    It grew in `grown` of `periods` between two snapshots. `at_least` says that the counter was
    reset or is saturated: it may be more.
    """

    host: str
    kind: str  # NVLink, port or PCIe
    link: str
    counter: str
    by: int
    hours: float
    grown: int = 0
    periods: int = 1
    at_least: bool = False


class Odd(msgspec.Struct, frozen=True, kw_only=True):
    """A link that differs from the `others` of its kind, whose counters grew by `others_by` in all,
    the most of one by `others_most`.

    `chance` is an upper bound for the chance that a link alike the others grows as much, times the
    number of links.
    """

    growth: Growth
    others: int
    others_by: int
    others_most: int
    chance: float


class TrendReport(msgspec.Struct, tag="busbw.trend/1", tag_field="schema", kw_only=True):
    """`links` counts those compared by kind, `grown` are the counters that grew, `reasons` say
    by host what could not be compared.
    """

    hosts: list[str]
    hours: float
    links: dict[str, int]
    odd: list[Odd]
    grown: list[Growth]
    reasons: dict[str, str] = {}


def odd_ones(all_alike: Sequence[Growth]) -> list[Odd]:
    """The links that differ, of growths of one counter of links of one kind.

    If all links had errors at the same rate, each of the N errors would be one of link i with the
    probability p of its share of the hours. A link is odd if Chernoff's bound for as many errors as
    it has, or more, times the number of links is below ALPHA. It is then left out, and the rest is
    looked at again.
    """
    rest, found = list(all_alike), list[Odd]()
    while len(rest) >= FEWEST_LINKS:
        most = max(rest, key=lambda growth: (growth.by / growth.hours, growth.by))
        others = [growth for growth in rest if growth is not most]
        chance = len(rest) * tail(
            most.by,
            sum(growth.by for growth in rest),
            most.hours / sum(growth.hours for growth in rest),
        )
        if most.by < FEW or chance >= ALPHA:
            break
        by = [growth.by for growth in others]
        found.append(
            Odd(
                growth=most,
                others=len(others),
                others_by=sum(by),
                others_most=max(by),
                chance=chance,
            )
        )
        rest = others
    return found


def tail(count: int, total: int, share: float) -> float:
    """An upper bound for P(X >= count) of a binomial X over `total` with probability `share`
    (Chernoff): exp(-total KL(count/total, p)).
    """
    if not total or count <= total * share:
        return 1.0
    part = count / total
    other = (1 - part) * math.log((1 - part) / (1 - share)) if part < 1 else 0.0
    return math.exp(-total * (part * math.log(part / share) + other))
