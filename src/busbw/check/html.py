"""Checks of machines as parts of a page: what is wrong and where, what differs between nodes, and
each node.
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.check.cluster_text import head_text, where_lines
from busbw.check.fault_text import check_name, detail_lines, parts_lines
from busbw.check.groups import FindingGroup, group
from busbw.check.nodes_html import facts_table, folded_nodes, node_parts, nodes_table
from busbw.check.text import summary
from busbw.check.types import NO_DATA, SHOWN_GRADES, CheckReport, ClusterReport, grade, node_names
from busbw.core.sizes import counted
from busbw.ui.html.element import add, section, tag
from busbw.ui.html.prose import prose
from busbw.ui.html.table import foldable, text_table

NOTHING_WRONG = "Nothing is wrong, as far as the checks can tell."


def one_machine(report: CheckReport, level: str = "h3") -> list[Element]:
    """The faults of one machine, and what else was checked."""
    parts = [*prose(f"{report.host}: {summary(report.findings)}")]
    parts += _faults([report], level)
    details = tag("details", tag("summary", "All checks"), *node_parts(report, {}))
    return [*parts, details]


def several_machines(cluster: ClusterReport, level: str = "h3") -> list[Element]:
    """What is wrong with which nodes, what differs, and each node."""
    if not cluster.nodes:
        return [*prose(head_text(cluster, []))]
    known = (
        nodes_table(cluster, level),
        *_faults(cluster.nodes, level),
        facts_table(cluster, level),
        folded_nodes(cluster, level),
    )
    head = prose(head_text(cluster, node_names(cluster.nodes)))
    return [*head, *(part for part in known if part is not None)]


def _faults(nodes: Sequence[CheckReport], level: str) -> list[Element]:
    """Each fault once with its nodes; then what has no data, folded."""
    names = node_names(nodes)
    groups = group(nodes, SHOWN_GRADES)
    bad = [fault for fault in groups if grade(fault.first) != NO_DATA]
    cards = (_card(fault, names) for fault in bad)
    parts = [tag("ul", *cards, class_="findings") if bad else tag("p", NOTHING_WRONG)]
    without = [fault for fault in groups if grade(fault.first) == NO_DATA]
    if without:
        parts.append(_without_data(without, names))
    return [section("What is wrong", *parts, level=level)]


def _without_data(groups: Sequence[FindingGroup], names: Sequence[str]) -> Element:
    """The checks that got no data, why, and where."""
    checks = {name for fault in groups for name in (fault.first.name, *fault.same_in)}
    lines = []
    for fault in groups:
        where = "; ".join(line.strip().removeprefix("on: ") for line in where_lines(fault, names))
        lines.append([", ".join((fault.first.name, *fault.same_in)), fault.headline, where])
    title = f"No data for {counted(len(checks), 'check')}"
    return foldable(title, text_table(("check", "why", "nodes"), lines, title), None)


def _card(fault: FindingGroup, names: Sequence[str]) -> Element:
    """The message with the nodes as ranges, then what was read, and the fix."""
    verdict = fault.first.verdict.value
    badge = tag("strong", verdict, class_=f"badge v-{verdict}")
    head = tag("p", badge, f" {fault.headline} ", tag("code", check_name(fault.first)[1:-1]))
    card = tag("li", head, class_=f"v-{verdict}")
    where = where_lines(fault, names) if len(names) > 1 else parts_lines(fault)
    for line in (*where, *detail_lines(fault)):
        label, colon, text = line.strip().partition(": ")
        add(card, tag("p", tag("span", label, class_="name"), f" {text}" if colon else None))
    return card
