"""Findings on command lines as text."""

from busbw.check.text import findings, summary
from busbw.check.types import CommandReport, LineReport
from busbw.ui.columns import wrapped


def text(report: CommandReport, width: int | None = None, *, everything: bool = False) -> str:
    """The facts used, then each line's findings, worst first."""
    facts = "; ".join(f"{name} {value}" for name, value in report.facts.items() if name != "host")
    without = "without the facts of this machine: it has no such launcher, or --no-machine is given"
    head = (
        f"with the facts of this machine, {report.facts['host']}: {facts or 'variables'}"
        if report.facts
        else without
    )
    return wrapped(
        f"{head}\n" + "".join(_line(one, everything=everything) for one in report.lines), width
    )


def _line(one: LineReport, *, everything: bool) -> str:
    where = f"{one.where}: " if one.where else ""
    found = findings(one.findings, everything=everything)
    return f"{where}{summary(one.findings)}" + (f"\n{found}" if found else "")
