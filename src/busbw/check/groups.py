"""Findings of several nodes: those on one fault become a group, a `Fault`, which reports print once
with the nodes that have it. `Problem` is a fault on one node, with the findings that follow from
it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from busbw.check.alike import HostText, for_any_host, largest, merged_text, pattern
from busbw.check.causes import Problem, problems
from busbw.check.types import (
    GRADES,
    SHOWN_GRADES,
    CheckReport,
    Fault,
    ReportedFinding,
    grade,
    node_names,
)
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold

_UNJUDGED = (Verdict.UNKNOWN, Verdict.SKIP)


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """A finding on a node, with the findings under it."""

    node: str
    problem: Problem

    @property
    def finding(self) -> ReportedFinding:
        return self.problem.finding


@dataclass(slots=True)
class FindingGroup:
    """One fault: findings of one check whose texts differ only in names and values.

    `same_in` are further checks with the same findings on the same nodes.
    """

    findings: list[NodeFinding]
    same_in: list[str] = field(default_factory=list)

    @property
    def first(self) -> ReportedFinding:
        return self.findings[0].finding

    @property
    def nodes(self) -> list[str]:
        """The nodes, each once."""
        return list(dict.fromkeys(item.node for item in self.findings))

    @property
    def headline(self) -> str:
        return merged_text([HostText(item.node, headline(item.finding)) for item in self.findings])

    @property
    def largest(self) -> list[HostText]:
        """The largest values with their nodes, or of one node with its parts, if there are more
        than two.
        """
        several = len(self.nodes) > 1
        return largest(
            [
                HostText(item.node if several else item.finding.subject, item.finding.message)
                for item in self.findings
            ]
        )

    @property
    def sample(self) -> list[NodeFinding]:
        """What was found on the node with the largest value, or on the first."""
        values = self.largest if len(self.nodes) > 1 else []
        node = values[0].host if values else self.findings[0].node
        return [item for item in self.findings if item.node == node]

    def parts(self) -> dict[str, list[str]]:
        """The nodes by their parts that have the fault, `mlx5_[3-4]`; '' is the whole node."""
        by_node: dict[str, list[str]] = {}
        for item in self.findings:
            by_node.setdefault(item.node, []).append(item.finding.subject)
        nodes: dict[str, list[str]] = {}
        for node, subjects in by_node.items():
            nodes.setdefault(fold(subjects), []).append(node)
        return nodes

    def details(self) -> list["FindingGroup"]:
        """What was found on these nodes under the fault."""
        under = [
            NodeFinding(item.node, Problem(detail))
            for item in self.findings
            for detail in item.problem.details
        ]
        return join_same(_by_fault(under))


def headline(finding: ReportedFinding) -> str:
    """The message, after the subject if the message does not name it."""
    if finding.subject and finding.subject not in finding.message:
        return f"{finding.subject}: {finding.message}"
    return finding.message


def group(nodes: Sequence[CheckReport], grades: Sequence[str]) -> list[FindingGroup]:
    """The faults of these grades, the worst and most frequent first.

    Faults of one check are next to each other.
    """
    findings = [
        NodeFinding(name, problem)
        for name, report in zip(node_names(nodes), nodes, strict=True)
        for problem in problems(report.findings)
        if grade(problem.finding) in grades
    ]
    groups = _by_fault(findings)
    most_nodes: dict[tuple[str, str], int] = {}
    for fault in groups:
        check = (grade(fault.first), fault.first.id)
        most_nodes[check] = max(most_nodes.get(check, 0), len(fault.nodes))

    def order(fault: FindingGroup) -> tuple[int, int, str, int]:
        check = (grade(fault.first), fault.first.id)
        return GRADES.index(check[0]), -most_nodes[check], check[1], -len(fault.nodes)

    return join_same(sorted(groups, key=order))


def shown_groups(nodes: Sequence[CheckReport], *, everything: bool) -> list[FindingGroup]:
    """What needs attention, or `everything`. Of nodes on which nothing was judged, why not."""
    if everything:
        return group(nodes, GRADES)
    unjudged = [
        node
        if all(finding.verdict is Verdict.SKIP for finding in node.findings)
        else structs.replace(node, findings=[])
        for node in nodes
    ]
    return group(nodes, SHOWN_GRADES) + group(unjudged, (Verdict.SKIP.value,))


def faults(nodes: Sequence[CheckReport]) -> list[Fault]:
    """What is not right on the nodes, for programs."""
    return [as_fault(fault) for fault in group(nodes, SHOWN_GRADES)]


def as_fault(fault: FindingGroup) -> Fault:
    first = fault.first
    details = [detail.name for item in fault.findings for detail in item.problem.details]
    return Fault(
        id=first.id,
        name=first.name,
        layer=first.layer,
        verdict=first.verdict,
        message=fault.headline,
        hosts=fault.nodes,
        optional=first.optional,
        under=list(dict.fromkeys(details)),
        same_in=fault.same_in,
    )


def _by_fault(findings: Iterable[NodeFinding]) -> list[FindingGroup]:
    groups: dict[tuple[str, str, tuple[str, ...]], FindingGroup] = {}
    for item in findings:
        text = HostText(item.node, headline(item.finding))
        key = (grade(item.finding), item.finding.id, pattern(text))
        groups.setdefault(key, FindingGroup([])).findings.append(item)
    return list(groups.values())


def join_same(groups: Iterable[FindingGroup]) -> list[FindingGroup]:
    """Groups of checks that could not judge the same parts of the same nodes, as one."""
    joined: dict[object, FindingGroup] = {}
    for fault in groups:
        if fault.first.verdict in _UNJUDGED:
            reasons = [
                (item.node, item.finding.subject, item.finding.message) for item in fault.findings
            ]
            key: object = (grade(fault.first), tuple(reasons))
        else:
            key = id(fault)
        if key in joined:
            joined[key].same_in.append(fault.first.name)
        else:
            joined[key] = fault
    return list(joined.values())


def fix_for_all(findings: Sequence[NodeFinding]) -> str:
    """The fix if it is the same on all nodes but for their names, else ''."""
    return for_any_host([HostText(item.node, item.finding.fix) for item in findings])
