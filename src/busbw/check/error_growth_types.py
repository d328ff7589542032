"""How the error counts of links grew between snapshots, and which link grew unlike the others.

Pure.

How the error counts of links grew: the links that differ first, then the others.
"""

import math
from collections.abc import Sequence

import msgspec

from busbw.core.sizes import counted
from busbw.ui.number_formats import Column, aligned, wrapped

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


MOST = 20  # lines of other counters
HOURS_A_DAY = 24

COLUMNS = (
    Column(title="host", value=lambda one: one.host, left=True),
    Column(title="link", value=lambda one: one.link, left=True),
    Column(title="counter", value=lambda one: one.counter, left=True),
    Column(title="grew by", value=lambda one: _by(one)),
    Column(title="periods", value=lambda one: f"{one.grown} of {one.periods}"),
)


def text(report: TrendReport, width: int | None = None) -> str:
    """The whole report."""
    links = (
        ", ".join(counted(count, kind) for kind, count in sorted(report.links.items())) or "no link"
    )
    head = f"{counted(len(report.hosts), 'host')}, {_span(report.hours)}: {links}\n"
    odd = "".join(_odd(one) for one in report.odd) or _none(report)
    named = {(one.growth.host, one.growth.link, one.growth.counter) for one in report.odd}
    rest = [one for one in report.grown if (one.host, one.link, one.counter) not in named]
    table = f"\nother counters that grew\n{aligned(COLUMNS, rest[:MOST], width)}" if rest else ""
    more = f"... {len(rest) - MOST} more: --format json has them all\n" if len(rest) > MOST else ""
    reasons = "".join(f"UNKNOWN {host}: {reason}\n" for host, reason in report.reasons.items())
    return wrapped(head + odd, width) + table + more + wrapped(reasons, width)


def _none(report: TrendReport) -> str:
    if not report.links:
        return "UNKNOWN no error counter of a link could be compared\n"
    return (
        "PASS    no link differs from the others\n"
        if report.grown
        else "PASS    no error counter of a link grew\n"
    )


def _odd(one: Odd) -> str:
    growth = one.growth
    others = f"none of the {one.others} others did"
    if one.others_by:
        others = f"the {one.others} others by {one.others_by:,} in all, {one.others_most:,} at most"
    chance = "below 1e-12" if one.chance < 1e-12 else f"at most {one.chance:.1e}"
    grew = f"{growth.counter} grew by {_by(growth)} in {growth.hours:.1f} h"
    return (
        f"WARN    {growth.host} {growth.link} differs from the others: {grew}, {others}\n"
        f"       "
        f" seen: in {growth.grown} of {counted(growth.periods, 'period')}; chance if all links were"
        f" alike {chance}, limit {ALPHA:g}\n"
        f"        fix: drain the host, reseat or reset this link,"
        " and take another snapshot; a single burst may not recur\n"
    )


def _by(growth: Growth) -> str:
    return f"{'at least ' if growth.at_least else ''}{growth.by:,}"


def _span(hours: float) -> str:
    return f"{hours / HOURS_A_DAY:.1f} days" if hours >= 2 * HOURS_A_DAY else f"{hours:.1f} hours"
