"""A fault as lines of text, on one node or several: the findings of one check that say the same of
many parts or nodes are one entry.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from busbw.check.alike import HostText, merged_text, pattern
from busbw.check.causes import is_cause
from busbw.check.groups import FindingGroup, NodeFinding, fix_for_all, headline
from busbw.check.types import SHOWN_GRADES, CheckReport, MutedFinding, ReportedFinding, grade
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold

_MAX_EVIDENCE_LINES = 4


def head_line(fault: FindingGroup) -> str:
    """The verdict, the message and the check."""
    return f"{label(fault.first)} {fault.headline}  {check_name(fault.first)}\n"


def parts_lines(fault: FindingGroup) -> list[str]:
    """The parts of a fault that its message does not name; none if the nodes differ in them."""
    part, *others = fault.parts()
    if others or part in fault.headline or "," not in part:
        return []
    return [f"        parts: {part.replace(',', ', ')}\n"]


def detail_lines(fault: FindingGroup) -> list[str]:
    """The largest values of a fault, its details, what was read, and the fix."""
    lines = []
    if fault.largest:
        values = ", ".join(f"{value.text} on {value.host}" for value in fault.largest)
        lines.append(f"        largest: {values}")
    details = fault.details()
    lines += _details_lines(fault, details)
    if grade(fault.first) in SHOWN_GRADES:
        lines += _seen(fault)
        causes = [detail for detail in details if is_cause(detail.first, fault.first)]
        for with_fix in (fault, *causes):
            lines += _fixes(with_fix)
        lines += stays_lines(fault.first)
    if fault.same_in:
        lines.append(f"        the same in: {', '.join(fault.same_in)}")
    return [f"{line}\n" for line in lines]


def _details_lines(fault: FindingGroup, details: Sequence[FindingGroup]) -> list[str]:
    """What has the same cause, with its nodes if they are not all that have the fault."""
    lines = []
    unjudged: list[str] = []
    for detail in details:
        if detail.first.verdict is Verdict.UNKNOWN:
            unjudged += [detail.first.name, *detail.same_in]
            continue
        on = "" if detail.nodes == fault.nodes else f" on {fold(detail.nodes)}"
        label_text = relation(detail.first, fault.first)
        text = f"{detail.headline}{on}  {check_name(detail.first)}"
        lines.append(f"        {label_text}: {text}")
    return lines + not_judged_lines(list(dict.fromkeys(unjudged)))


def _seen(fault: FindingGroup) -> list[str]:
    """What was read: the same everywhere, or the largest value as an example."""
    sample = fault.sample[0]
    evidence = {item.finding.evidence for item in fault.findings}
    return seen_lines(sample.finding, "" if len(evidence) == 1 else _on(fault, sample.node))


def _fixes(fault: FindingGroup) -> list[str]:
    """The fix for all nodes, or that of the sample for its first part."""
    fix = fix_for_all(fault.findings)
    if fix or not fault.first.fix:
        return [f"        fix: {fix}"] if fix else []
    alike: dict[tuple[str, ...], list[NodeFinding]] = {}
    for item in fault.sample:
        if item.finding.fix:
            alike.setdefault(pattern(HostText(item.node, item.finding.fix)), []).append(item)
    lines = []
    for first, *others in alike.values():
        parts = fold(other.finding.subject for other in others)
        likewise = f"; likewise {parts}" if parts else ""
        lines.append(f"        fix{_on(fault, first.node)}: {first.finding.fix}{likewise}")
    return lines


def _on(fault: FindingGroup, node: str) -> str:
    """` on gpu7`, or '' if no other node has the fault."""
    return f" on {node}" if len(fault.nodes) > 1 else ""


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


class MuteText(NamedTuple):
    """What one mute accepts on some nodes: `MUTED   mlx5_3: has MTU 1500 (warn)  [BW070 nic-mtu]`,
    and until when and why.
    """

    head: str
    reason: str
    nodes: list[str]


def muted(reports: Sequence[CheckReport], names: Sequence[str]) -> Iterator[MuteText]:
    """Each mute once for findings that are alike; `names` are those of the nodes."""
    accepted: dict[tuple[str, ...], list[list[HostText]]] = {}
    for name, report in zip(names, reports, strict=True):
        for mute in report.muted:
            lines = [HostText(name, line) for line in _muted_lines(mute)]
            key = tuple(chain.from_iterable(map(pattern, lines)))
            accepted.setdefault(key, []).append(lines)
    for alike in accepted.values():
        head, reason = (merged_text(column) for column in zip(*alike, strict=True))
        yield MuteText(head, reason, list(dict.fromkeys(first.host for first, _ in alike)))


def _muted_lines(mute: MutedFinding) -> list[str]:
    finding = mute.finding
    return [
        f"MUTED   {headline(finding)} ({finding.verdict.value})  {check_name(finding)}\n",
        f"        until: {mute.until}, {mute.where}: {mute.reason}\n",
    ]
