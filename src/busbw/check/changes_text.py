"""What changed between the snapshots of two times, as text."""

from collections.abc import Sequence

from busbw.check.changes import ChangeReport
from busbw.check.shell_words import word
from busbw.check.types import Fault
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.ui.columns import wrapped

_NOTHING = "\nno finding on either side\n"


def text(report: ChangeReport, width: int | None = None) -> str:
    """The nodes, then the faults: new, gone, not judged any more, and unchanged."""
    head = f"{report.before} to {report.after}: {counted(len(report.nodes), 'node')} compared\n"
    if report.only_before:
        head += f"UNKNOWN {fold(report.only_before)}: only in {report.before}\n"
    if report.only_after:
        head += f"only in {report.after}, so that all findings are new: {fold(report.only_after)}\n"
    for file, reason in report.unreadable.items():
        head += f"UNKNOWN {file}: {reason}\n"
    body = (
        _part("new", report.new)
        + _part("gone", report.gone)
        + _part(f"no data in {report.after}", report.unjudged)
        + _part("unchanged", report.unchanged)
    )
    return wrapped(head + (body or _NOTHING) + _hint(report), width)


def _part(title: str, faults: Sequence[Fault]) -> str:
    """A heading with the number of faults, and each fault with its nodes; '' without any."""
    if not faults:
        return ""
    return f"\n{title}: {counted(len(faults), 'fault')}\n" + "".join(map(_fault, faults))


def _fault(fault: Fault) -> str:
    label = fault.verdict.value.upper()
    message = f"{label:7} {fault.message}  [{fault.id} {fault.name}]\n"
    return f"{message}        on: {fold(fault.hosts)}\n"


def _hint(report: ChangeReport) -> str:
    """The command that prints the evidence and fixes of what is new; '' if nothing is."""
    names = dict.fromkeys(fault.name for fault in report.new)
    only = "".join(f" --only {name}" for name in names)
    return f"\nevidence and fixes: busbw check --from {word(report.after)}{only}\n" if only else ""
