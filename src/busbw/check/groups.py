"""Findings of several nodes, those on one fault together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from busbw.check.alike import Said, for_any_host, largest, merged_text, pattern
from busbw.check.causes import Problem, problems
from busbw.check.types import GRADES, SHOWN_GRADES, Checked, CheckReport, Fault, grade, node_names
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold

_UNJUDGED = (Verdict.UNKNOWN, Verdict.SKIP)


@dataclass(frozen=True, slots=True)
class OnNode:
    """A finding on a node, with the findings under it."""

    node: str
    problem: Problem

    @property
    def finding(self) -> Checked:
        """The finding."""
        return self.problem.finding


@dataclass(slots=True)
class Group:
    """One fault: findings of one check whose texts differ only in names and values.

    `same_in` are further checks with the same findings on the same nodes.
    """

    found: list[OnNode]
    same_in: list[str] = field(default_factory=list)

    @property
    def first(self) -> Checked:
        """The finding on the first node."""
        return self.found[0].finding

    @property
    def nodes(self) -> list[str]:
        """The nodes, each once."""
        return list(dict.fromkeys(one.node for one in self.found))

    @property
    def headline(self) -> str:
        """The message for all nodes."""
        return merged_text([Said(one.node, headline(one.finding)) for one in self.found])

    @property
    def largest(self) -> list[Said]:
        """The largest values with their nodes, if there are more than two."""
        return largest([Said(one.node, one.finding.message) for one in self.found])

    @property
    def sample(self) -> list[OnNode]:
        """What was found on the node with the largest value, or on the first."""
        values = self.largest
        node = values[0].host if values else self.found[0].node
        return [one for one in self.found if one.node == node]

    def parts(self) -> dict[str, list[str]]:
        """The nodes by their parts that have the fault, `mlx5_[3-4]`; '' is the whole node."""
        by_node: dict[str, list[str]] = {}
        for one in self.found:
            by_node.setdefault(one.node, []).append(one.finding.subject)
        nodes: dict[str, list[str]] = {}
        for node, subjects in by_node.items():
            nodes.setdefault(fold(subjects), []).append(node)
        return nodes

    def details(self) -> list["Group"]:
        """What was found on these nodes under the fault."""
        under = [
            OnNode(one.node, Problem(detail))
            for one in self.found
            for detail in one.problem.details
        ]
        return join_same(_by_fault(under))


def headline(finding: Checked) -> str:
    """The message, after the subject if the message does not name it."""
    if finding.subject and finding.subject not in finding.message:
        return f"{finding.subject}: {finding.message}"
    return finding.message


def group(nodes: Sequence[CheckReport], grades: Sequence[str]) -> list[Group]:
    """The faults of these grades, the worst and most frequent first.

    Faults of one check are next to each other.
    """
    found = [
        OnNode(name, problem)
        for name, report in zip(node_names(nodes), nodes, strict=True)
        for problem in problems(report.findings)
        if grade(problem.finding) in grades
    ]
    groups = _by_fault(found)
    most: dict[tuple[str, str], int] = {}
    for one in groups:
        check = (grade(one.first), one.first.id)
        most[check] = max(most.get(check, 0), len(one.nodes))

    def order(one: Group) -> tuple[int, int, str, int]:
        check = (grade(one.first), one.first.id)
        return GRADES.index(check[0]), -most[check], check[1], -len(one.nodes)

    return join_same(sorted(groups, key=order))


def faults(nodes: Sequence[CheckReport]) -> list[Fault]:
    """What is not right on the nodes, for programs."""
    return [_fault(one) for one in group(nodes, SHOWN_GRADES)]


def _fault(one: Group) -> Fault:
    first = one.first
    details = [detail.name for each in one.found for detail in each.problem.details]
    return Fault(
        id=first.id,
        name=first.name,
        layer=first.layer,
        verdict=first.verdict,
        message=one.headline,
        hosts=one.nodes,
        optional=first.optional,
        under=list(dict.fromkeys(details)),
        same_in=one.same_in,
    )


def _by_fault(found: Iterable[OnNode]) -> list[Group]:
    groups: dict[tuple[str, str, tuple[str, ...]], Group] = {}
    for one in found:
        said = Said(one.node, headline(one.finding))
        key = (grade(one.finding), one.finding.id, pattern(said))
        groups.setdefault(key, Group([])).found.append(one)
    return list(groups.values())


def join_same(groups: Iterable[Group]) -> list[Group]:
    """Groups of several checks as one if these could not judge the same parts of the same nodes
    for the same reason.
    """
    joined: dict[object, Group] = {}
    for one in groups:
        if one.first.verdict in _UNJUDGED:
            said = [(each.node, each.finding.subject, each.finding.message) for each in one.found]
            key: object = (grade(one.first), tuple(said))
        else:
            key = id(one)
        if key in joined:
            joined[key].same_in.append(one.first.name)
        else:
            joined[key] = one
    return list(joined.values())


def fix_for_all(found: Sequence[OnNode]) -> str:
    """The fix if it is the same on all nodes but for their names, else ''."""
    return for_any_host([Said(one.node, one.finding.fix) for one in found])
