"""How the error counts of links grew between snapshots, and which links differ from the others.

The types of the report, the statistics that name a link, and the report as text. No I/O.
"""

import math
from collections.abc import Sequence

import msgspec

from busbw.core.sizes import counted
from busbw.ui.columns import Column, aligned, wrapped

ALPHA = 0.01  # chance of naming a link where all links of a kind are alike
FEW = 5  # a link with fewer errors is not named
FEWEST_LINKS = 3


class Growth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one error counter of one link grew between a host's first and last snapshot.

    These are `hours` apart. It grew by `by` in all, in `grown` of the `periods` between two
    snapshots. `at_least` says that the counter was reset or is saturated, so it may be more.
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


class OutlierLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that differs from the `others` of its kind.

    Their counters grew by `others_by` in all, and the one that grew most by `others_most`. `chance`
    is an upper bound for the chance that a link like the others grows as much, times the number of
    links.
    """

    growth: Growth
    others: int
    others_by: int
    others_most: int
    chance: float


class TrendReport(msgspec.Struct, tag="busbw.trend/1", tag_field="schema", kw_only=True):
    """The report on all hosts.

    `links` is the number of links compared, by kind. `grown` are the counters that grew. `reasons`
    say by host why it could not be compared.
    """

    hosts: list[str]
    hours: float
    links: dict[str, int]
    odd: list[OutlierLink]
    grown: list[Growth]
    reasons: dict[str, str] = {}


def find_outliers(all_alike: Sequence[Growth]) -> list[OutlierLink]:
    """The links that differ, from the growths of one counter on all links of one kind.

    If all links had errors at the same rate, an error would be on a link with the probability p,
    its share of the hours. A link is odd if Chernoff's bound for as many errors as it has, or more,
    times the number of links is below ALPHA. It is then left out, and the others are judged again.
    """
    remaining, odd = list(all_alike), list[OutlierLink]()
    while len(remaining) >= FEWEST_LINKS:
        fastest = max(remaining, key=lambda growth: (growth.by / growth.hours, growth.by))
        others = [growth for growth in remaining if growth is not fastest]
        total = sum(growth.by for growth in remaining)
        share = fastest.hours / sum(growth.hours for growth in remaining)
        chance = len(remaining) * tail(fastest.by, total, share)
        if fastest.by < FEW or chance >= ALPHA:
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


def tail(count: int, total: int, share: float) -> float:
    """An upper bound for P(X >= count), X binomial with `total` trials of probability `share`.

    Chernoff's bound: exp(-total KL(count/total, share)).
    """
    if not total or count <= total * share:
        return 1.0
    part = count / total
    other = (1 - part) * math.log((1 - part) / (1 - share)) if part < 1 else 0.0
    return math.exp(-total * (part * math.log(part / share) + other))


MAX_COUNTER_LINES = 20  # of other counters on a terminal
HOURS_A_DAY = 24


def _growth_text(growth: Growth) -> str:
    return f"{'at least ' if growth.at_least else ''}{growth.by:,}"


COLUMNS = (
    Column(title="host", value=lambda growth: growth.host, left=True),
    Column(title="link", value=lambda growth: growth.link, left=True),
    Column(title="counter", value=lambda growth: growth.counter, left=True),
    Column(title="grew by", value=_growth_text),
    Column(title="periods", value=lambda growth: f"{growth.grown} of {growth.periods}"),
)


def text(report: TrendReport, width: int | None = None) -> str:
    """The links that differ, then the other counters that grew."""
    links = ", ".join(counted(count, kind) for kind, count in sorted(report.links.items()))
    hosts = counted(len(report.hosts), "host")
    head = f"{hosts}, {_span_text(report.hours)}: {links or 'no link'}\n"
    odd = "".join(map(_warning, report.odd)) or _text_without_odd(report)
    named = {_place(odd_link.growth) for odd_link in report.odd}
    others = [growth for growth in report.grown if _place(growth) not in named]
    table, more = "", ""
    shown: Sequence[Growth] = ()
    if others:
        shown = others if width is None else others[:MAX_COUNTER_LINES]
        rows = _without_domain(shown)
        table = f"\nother counters that grew\n{aligned(COLUMNS, rows, width, ('periods',))}"
    if len(others) > len(shown):
        more = f"... {len(others) - len(shown)} more: a file or pipe has them all\n"
    reasons = "".join(f"UNKNOWN {host}: {reason}\n" for host, reason in report.reasons.items())
    return wrapped(head + odd, width) + table + more + wrapped(reasons, width)


def _without_domain(growths: Sequence[Growth]) -> list[Growth]:
    """The growths with the first part of their hosts' names, if these differ in it."""
    hosts = {growth.host for growth in growths}
    short = {host: host.partition(".")[0] for host in hosts}
    if len(set(short.values())) < len(hosts) or any(name.isdigit() for name in short.values()):
        return list(growths)
    return [msgspec.structs.replace(growth, host=short[growth.host]) for growth in growths]


def _place(growth: Growth) -> tuple[str, str, str]:
    return growth.host, growth.link, growth.counter


def _text_without_odd(report: TrendReport) -> str:
    if not report.links:
        return "UNKNOWN no error counter of a link could be compared\n"
    if report.grown:
        return "PASS    no link differs from the others\n"
    return "PASS    no error counter of a link grew\n"


def _warning(odd: OutlierLink) -> str:
    growth = odd.growth
    others = f"none of the {odd.others} others did"
    if odd.others_by:
        others = f"the {odd.others} others by {odd.others_by:,} in all, {odd.others_most:,} at most"
    chance = "below 1e-12" if odd.chance < 1e-12 else f"at most {odd.chance:.1e}"
    grew = f"{growth.counter} grew by {_growth_text(growth)} in {growth.hours:.1f} h"
    periods = f"{growth.grown} of {counted(growth.periods, 'period')}"
    return (
        f"WARN    {growth.host} {growth.link} differs from the others: {grew}, {others}\n"
        f"        seen: in {periods}; chance if all links were alike {chance}, limit {ALPHA:g}\n"
        f"        fix: drain the host, reseat or reset this link,"
        " and take another snapshot; a single burst may not recur\n"
    )


def _span_text(hours: float) -> str:
    return f"{hours / HOURS_A_DAY:.1f} days" if hours >= 2 * HOURS_A_DAY else f"{hours:.1f} hours"
