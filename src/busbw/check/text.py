"""The findings on one machine as text: faults first, with evidence and fix.

Also the page of a check, and the list of all checks.
"""

from collections import Counter
from collections.abc import Sequence

from busbw.check.causes import Problem, is_cause, problems
from busbw.check.groups import headline
from busbw.check.types import (
    AS_ROOT,
    GRADES,
    NO_DATA,
    SHOWN_GRADES,
    CheckReport,
    MutedFinding,
    ReportedFinding,
    grade,
)
from busbw.core.finding import CheckRow, Verdict
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.ui.columns import Column, aligned, wrapped

_MAX_EVIDENCE_LINES = 4
_MAX_NAMED_PARTS = 8


def text(report: CheckReport, width: int | None = None, *, everything: bool = False) -> str:
    """All findings that need attention, the worst first.

    With `everything` also those that passed or were skipped.
    """
    source = f" ({report.source})" if report.source not in ("", report.host) else ""
    body = f"{findings(report.findings, everything=everything)}{muted(report.muted)}"
    read = f"{report.read}; " if report.read else ""
    head = f"{read}{summary(report.findings).rstrip()}"
    if report.muted:
        head += f"; {counted(len(report.muted), 'finding')} muted"
    return wrapped(f"{report.host}{source}: {head}\n\n{body}", width)


def findings(shown: Sequence[ReportedFinding], *, everything: bool) -> str:
    """The findings, with lines of any length."""
    shown_problems = problems(shown)
    groups: list[list[Problem]] = []
    for grade_name in GRADES if everything else SHOWN_GRADES:
        groups += _group_by_check(shown_problems, grade_name)
    joined = _join_alike(groups)
    return "".join(_group_text(first) + _others_line(others) for first, *others in joined)


def muted(mutes: Sequence[MutedFinding]) -> str:
    """The lines of all mutes; '' if nothing is muted."""
    return "".join(f"{line}\n" for mute in mutes for line in muted_lines(mute))


def muted_lines(mute: MutedFinding) -> list[str]:
    """`MUTED   mlx5_3: has MTU 1500 (warn)  [BW070 nic-mtu]`, and until when and why."""
    finding = mute.finding
    return [
        f"MUTED   {headline(finding)} ({finding.verdict.value})  {check_name(finding)}",
        f"        until: {mute.until}, {mute.where}: {mute.reason}",
    ]


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


def _group_by_check(shown: Sequence[Problem], grade_name: str) -> list[list[Problem]]:
    """The findings of this grade, those of one check together."""
    groups: dict[str, list[Problem]] = {}
    for problem in shown:
        if grade(problem.finding) == grade_name:
            groups.setdefault(problem.finding.id, []).append(problem)
    return list(groups.values())


def _join_alike(groups: Sequence[list[Problem]]) -> list[list[list[Problem]]]:
    """Groups of several checks together that could not judge the same parts for the same reason."""
    joined: dict[object, list[list[Problem]]] = {}
    for group in groups:
        first = group[0].finding
        key: object = first.id
        if first.verdict is Verdict.UNKNOWN:
            key = tuple((problem.finding.subject, problem.finding.message) for problem in group)
        joined.setdefault((grade(first), key), []).append(group)
    return list(joined.values())


def _others_line(groups: Sequence[list[Problem]]) -> str:
    """The names of further checks with the same findings."""
    names = [group[0].finding.name for group in groups]
    return f"        the same in: {', '.join(names)}\n" if names else ""


def _group_text(group: Sequence[Problem]) -> str:
    """The first finding in full, the subjects of the others, and what has the same cause."""
    first = group[0].finding
    lines = [f"{label(first)} {headline(first)}  {check_name(first)}"]
    if len(group) > 1:
        others = [problem.finding.subject for problem in group[1:]]
        lines.append(f"        also: {list_parts(others)}")
    details = [detail for problem in group for detail in problem.details]
    lines += _details_lines(first, details)
    if grade(first) in SHOWN_GRADES:
        lines += seen_lines(first)
        to_fix = [problem.finding for problem in group]
        to_fix += [detail for detail in details if is_cause(detail, first)]
        fixes = dict.fromkeys(finding.fix for finding in to_fix if finding.fix)
        lines += [f"        fix: {fix}" for fix in fixes]
        lines += stays_lines(first)
    return "\n".join(lines) + "\n"


def _details_lines(first: ReportedFinding, details: Sequence[ReportedFinding]) -> list[str]:
    """Each detail in a line; those that could not be judged by the names of their checks."""
    lines = [
        f"        {relation(detail, first)}: {headline(detail)}  {check_name(detail)}"
        for detail in details
        if detail.verdict is not Verdict.UNKNOWN
    ]
    unjudged = [detail.name for detail in details if detail.verdict is Verdict.UNKNOWN]
    return [*dict.fromkeys(lines), *not_judged_lines(list(dict.fromkeys(unjudged)))]


def relation(detail: ReportedFinding, finding: ReportedFinding) -> str:
    return "cause" if is_cause(detail, finding) else "with"


def label(finding: ReportedFinding) -> str:
    """`FAIL   `, `NO DATA`."""
    return f"{grade(finding).upper():7}"


def check_name(finding: ReportedFinding) -> str:
    """`[BW070 nic-mtu]`."""
    return f"[{finding.id} {finding.name}]"


def not_judged_lines(names: Sequence[str]) -> list[str]:
    """The line of the checks that could not judge a part that is at fault; none without names."""
    return [f"        so not judged: {', '.join(names)}"] if names else []


def seen_lines(finding: ReportedFinding, on: str = "") -> list[str]:
    """What was read; `on` is ` on gpu7` if it was read on one node of several."""
    lines = []
    for evidence in finding.evidence[:_MAX_EVIDENCE_LINES]:
        expected = f", expected {evidence.expected}" if evidence.expected else ""
        lines.append(f"        seen{on}: {evidence.where}: {evidence.seen}{expected}")
    return lines


def stays_lines(finding: ReportedFinding) -> list[str]:
    """Whether the fix survives a reboot."""
    prefix = "" if finding.stays.startswith("after reboot:") else "stays: "
    return [f"        {prefix}{finding.stays}"] if finding.stays else []


def list_parts(names: Sequence[str]) -> str:
    """The names of parts; many of them as ranges: `mlx5_[0-15]`."""
    if len(names) <= _MAX_NAMED_PARTS:
        return ", ".join(names)
    return fold(names).replace("],", "], ")


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
