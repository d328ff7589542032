"""Findings on command lines as text."""

from busbw.check.text import findings, summary
from busbw.check.types import CommandReport, LineReport
from busbw.ui.columns import wrapped


def text(report: CommandReport, width: int | None = None, *, everything: bool = False) -> str:
    """The facts used, then each line's findings, worst first."""
    facts = "; ".join(f"{name} {value}" for name, value in report.facts.items() if name != "host")
    head = "without the facts of this machine: it has no such launcher, or --no-machine is given"
    if report.facts:
        host = report.facts["host"]
        head = f"with the facts of this machine, {host}: {facts or 'variables'}"
    lines = [_line(line, everything=everything) for line in report.lines]
    return wrapped("".join((f"{head}\n", *lines)), width)


def _line(line: LineReport, *, everything: bool) -> str:
    where = f"{line.where}: " if line.where else ""
    texts = findings(line.findings, everything=everything)
    return f"{where}{summary(line.findings)}" + (f"\n{texts}" if texts else "")
