"""How the error counts of links grew: the links that differ first, then the others."""

from busbw.check.error_growth_types import ALPHA, Growth, Odd, TrendReport
from busbw.core.sizes import counted
from busbw.ui.columns import Column, aligned, wrapped

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
