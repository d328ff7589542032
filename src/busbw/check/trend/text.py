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
    odd += "".join(map(_fault, report.faults))
    named = {_place(odd_link.growth) for odd_link in report.odd}
    others = [growth for growth in report.grown if _place(growth) not in named]
    table = ""
    if others:
        rows = _without_domain(others)
        table = f"\nother counters that grew\n{aligned(COLUMNS, rows, width, ('periods',))}"
    reasons = "".join(f"UNKNOWN {hosts}\n" for hosts in by_reason(report.reasons))
    return wrapped(head + odd, width) + table + wrapped(reasons, width)


def _fault(fault: Fault) -> str:
    label = "no data" if fault.optional else fault.verdict.value
    head = f"{label.upper():7} {fault.message}  [{fault.id} {fault.name}]\n"
    return f"{head}        on: {fold(fault.hosts)}\n"


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
    periods = f"{growth.grown} of {counted(growth.periods, 'period')}"
    return f"WARN    {differs(odd)}\n        seen: in {periods}; {seen(odd)}\n        fix: {FIX}\n"


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
