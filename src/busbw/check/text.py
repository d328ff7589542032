"""The findings on one machine as text: faults first, with evidence and fix.

Also the page of a check, and the list of all checks.
"""

from collections import Counter
from collections.abc import Sequence

from busbw.check.fault_text import detail_lines, head_line, muted, parts_lines
from busbw.check.groups import FindingGroup, shown_groups
from busbw.check.types import AS_ROOT, GRADES, NO_DATA, CheckReport, ReportedFinding, grade
from busbw.core.finding import CheckRow
from busbw.core.sizes import counted
from busbw.ui.columns import Column, aligned, wrapped


def text(report: CheckReport, width: int | None = None, *, everything: bool = False) -> str:
    """All findings that need attention, the worst first.

    With `everything` also those that passed or were skipped.
    """
    source = f" ({report.source})" if report.source not in ("", report.host) else ""
    body = findings(report.findings, everything=everything, host=report.host)
    for mute in muted([report], [report.host]):
        body += f"{mute.head}{mute.reason}"
    read = f"{report.read}; " if report.read else ""
    head = f"{read}{summary(report.findings).rstrip()}"
    if report.muted:
        head += f"; {counted(len(report.muted), 'finding')} muted"
    return wrapped(f"{report.host}{source}: {head}\n\n{body}", width)


def findings(shown: Sequence[ReportedFinding], *, everything: bool, host: str = "") -> str:
    """The findings, each fault once with its parts, with lines of any length."""
    report = CheckReport(host=host, findings=list(shown))
    return "".join(map(_in_full, shown_groups([report], everything=everything)))


def _in_full(fault: FindingGroup) -> str:
    return head_line(fault) + "".join([*parts_lines(fault), *detail_lines(fault)])


def summary(all_findings: Sequence[ReportedFinding]) -> str:
    """`78 checks: 2 fail, 1 warn, 5 no data (4 need root), 62 pass, 8 skip`."""
    worst: dict[str, str] = {}
    for finding in all_findings:
        before = worst.get(finding.id, GRADES[-1])
        worst[finding.id] = min(before, grade(finding), key=GRADES.index)
    count = Counter(worst.values())
    needs_root = {
        finding.id for finding in all_findings if finding.optional and finding.fix == AS_ROOT
    }
    denied = sum(worst[check] == NO_DATA for check in needs_root)
    texts = {name: f"{count[name]} {name}" for name in GRADES if count[name]}
    if denied:
        texts[NO_DATA] += f" ({denied} need root)"
    return f"{counted(len(worst), 'check')}: {', '.join(texts.values())}\n"


def page(row: CheckRow, width: int | None = None) -> str:
    """The page of one check: its row, a field on each line."""
    fields = (
        ("layer", row.layer.value),
        ("right", row.right),
        ("why", row.why),
        ("fix", row.fix),
        ("stays", row.stays),
        ("reads", ", ".join(row.reads)),
        ("sources", "; ".join(row.sources)),
    )
    lines = [
        f"{row.id}  {row.name}: {row.title}",
        "",
        *(f"{name:8} {text}" for name, text in fields if text),
    ]
    return wrapped("".join(f"{line}\n" for line in lines), width)


def listing(rows: Sequence[CheckRow], width: int | None = None) -> str:
    """All checks in a table; on a narrow terminal without their layers."""
    columns = [
        Column(title="id", value=lambda row: row.id, left=True),
        Column(title="name", value=lambda row: row.name, left=True),
        Column(title="layer", value=lambda row: row.layer.value, left=True),
        Column(title="looks at", value=lambda row: row.title, left=True),
    ]
    return aligned(columns, rows, width, ("layer",), wrap_last=True)
