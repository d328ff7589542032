"""The report of `busbw check trend` as text."""

from collections.abc import Sequence

import msgspec

from busbw.check.trend.outliers import FALSE_ALARM_CHANCE
from busbw.check.trend.types import Growth, OutlierLink, TrendReport
from busbw.check.types import Fault
from busbw.core.host_ranges import by_reason, fold
from busbw.core.sizes import counted
from busbw.ui.columns import Column, aligned, wrapped

HOURS_A_DAY = 24
FIX = (
    "drain the host, reseat or reset this link, and take another snapshot; a single burst may not"
    " recur"
)


MOST_UNLIKE = 2  # times as much may a counter of one line have grown on another host


def _growth_text(growth: Growth) -> str:
    return f"{'at least ' if growth.at_least else ''}{growth.by:,}"


def _growths_text(alike: Sequence[Growth]) -> str:
    """`10`, or of hosts with different values `10 to 14`."""
    texts = dict.fromkeys(map(_growth_text, (alike[-1], alike[0])))
    return " to ".join(texts)


def _periods_text(alike: Sequence[Growth]) -> str:
    """`2 of 2`, or `1 to 2 of 2`; of hosts with another number of snapshots, all of theirs."""
    grown = [growth.grown for growth in alike]
    periods = [growth.periods for growth in alike]
    numbers = (dict.fromkeys(map(str, (min(each), max(each)))) for each in (grown, periods))
    return " of ".join(" to ".join(texts) for texts in numbers)


COLUMNS = (  # of the growths of one counter of one link that are alike on several hosts
    Column(title="host", value=lambda alike: fold(growth.host for growth in alike), left=True),
    Column(title="link", value=lambda alike: alike[0].link, left=True),
    Column(title="counter", value=lambda alike: alike[0].counter, left=True),
    Column(title="grew by", value=_growths_text),
    Column(title="periods", value=_periods_text),
)


def text(report: TrendReport, width: int | None = None) -> str:
    """The links that differ, then the other counters that grew."""
    links = ", ".join(counted(count, kind) for kind, count in sorted(report.links.items()))
    hosts = counted(len(report.hosts), "host")
    head = f"{hosts}, {_span_text(report.hours)}: {links or 'no link'}\n"
    odd = _warnings(report.odd) or _text_without_odd(report)
    odd += "".join(map(_fault, report.faults))
    named = {_place(odd_link.growth) for odd_link in report.odd}
    others = [growth for growth in report.grown if _place(growth) not in named]
    table = ""
    if others:
        rows = _alike(_without_domain(others))
        table = f"\nother counters that grew\n{aligned(COLUMNS, rows, width, ('periods',))}"
    reasons = "".join(f"UNKNOWN {hosts}\n" for hosts in by_reason(report.reasons))
    return wrapped(head + odd, width) + table + wrapped(reasons, width)


def _fault(fault: Fault) -> str:
    label = "no data" if fault.optional else fault.verdict.value
    head = f"{label.upper():7} {fault.message}  [{fault.id} {fault.name}]\n"
    return f"{head}        on: {fold(fault.hosts)}\n"


def _alike(growths: Sequence[Growth]) -> list[list[Growth]]:
    """The growths of one counter of one link on several hosts together, the largest first, unless
    one is more than MOST_UNLIKE times another.
    """
    rows: list[list[Growth]] = []
    latest: dict[tuple[str, str, str], list[Growth]] = {}
    for growth in sorted(growths, key=lambda growth: -growth.by):
        key = growth.kind, growth.link, growth.counter
        row = latest.get(key)
        if row is None or row[0].by > MOST_UNLIKE * growth.by:
            row = latest[key] = []
            rows.append(row)
        row.append(growth)
    return rows


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


def _warnings(odd: Sequence[OutlierLink]) -> str:
    """The links that differ, and what to do about each of them."""
    text = ""
    for link in odd:
        periods = f"{link.growth.grown} of {counted(link.growth.periods, 'period')}"
        text += f"WARN    {differs(link)}\n        seen: in {periods}; {seen(link)}\n"
    return text + (f"        fix: {FIX}\n" if odd else "")


def differs(odd: OutlierLink) -> str:
    """How much more errors a link counted than the others."""
    return f"{odd.growth.host} {odd.growth.link} differs from the others: {grew(odd)}"


def grew(odd: OutlierLink) -> str:
    """By how much, and by how much the others."""
    others = f"none of the {odd.others} others did"
    if odd.others_by:
        others = f"the {odd.others} others by {odd.others_by:,} in all, {odd.others_most:,} at most"
    growth = odd.growth
    by = f"{growth.counter} grew by {_growth_text(growth)} in {growth.hours:.1f} h"
    return f"{by}, {others}"


def seen(odd: OutlierLink) -> str:
    """How little chance explains it."""
    chance = "below 1e-12" if odd.chance < 1e-12 else f"at most {odd.chance:.1e}"
    return f"chance if all links were alike {chance}, limit {FALSE_ALARM_CHANCE:g}"


def _span_text(hours: float) -> str:
    return f"{hours / HOURS_A_DAY:.1f} days" if hours >= 2 * HOURS_A_DAY else f"{hours:.1f} hours"
