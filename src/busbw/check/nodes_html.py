"""Many nodes as parts of a page: a table of those that are alike, what differs, and each node."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from busbw.check.differences_text import differs_everywhere, missing, odd_text
from busbw.check.groups import headline
from busbw.check.types import (
    GRADES,
    NO_DATA,
    SEVERITY,
    SHOWN_GRADES,
    CheckReport,
    ClusterReport,
    Difference,
    ReportedFinding,
    grade,
    node_names,
)
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.ui.html.element import section, tag
from busbw.ui.html.table import foldable, text_table

USUAL = "as usual"
OWN_VALUE = "each node has its own"
BAD = tuple(name for name in SHOWN_GRADES if name != NO_DATA)
MAX_EVIDENCE = 2  # values of a finding

# Names and values of facts in which a node is unlike the others.
Unlike = dict[str, str]


@dataclass(slots=True)
class _Alike:
    """Nodes with the same values of all facts that differ."""

    unlike: Unlike
    hosts: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def nodes_table(cluster: ClusterReport, level: str) -> Element | None:
    """A line for each group of nodes that are alike, the largest first."""
    if len(cluster.nodes) < 2:
        return None
    unlike = _unlike(cluster)
    groups: dict[tuple[tuple[str, str], ...], _Alike] = {}
    for name, report in zip(node_names(cluster.nodes), cluster.nodes, strict=True):
        values = unlike.get(name, {})
        alike = groups.setdefault(tuple(values.items()), _Alike(values))
        alike.hosts.append(name)
        alike.verdicts.append(report.verdict)
    ordered = sorted(groups.values(), key=lambda alike: -len(alike.hosts))
    titles = ("nodes", "number", "verdicts", "unlike the others")
    table = text_table(titles, map(_alike_line, ordered), "Nodes by what differs")
    return section("Nodes by what differs", table, level=level)


def _unlike(cluster: ClusterReport) -> dict[str, Unlike]:
    """For each node the facts in which it is unlike the others; without those of which most nodes
    have a value of their own.
    """
    unlike: dict[str, Unlike] = {}
    for difference in cluster.differences:
        if len(difference.odd) > 2 and 2 * len(difference.odd) > len(cluster.nodes):
            continue
        for value, hosts in difference.odd.items():
            for host in hosts:
                unlike.setdefault(host, {})[difference.fact] = value
    return unlike


def _alike_line(alike: _Alike) -> list[str | Element]:
    count = Counter(alike.verdicts)
    verdicts = ", ".join(
        f"{count[verdict]} {verdict.value}" for verdict in SEVERITY if count[verdict]
    )
    values = [tag("li", f"{fact}: {value}") for fact, value in alike.unlike.items()]
    unlike: str | Element = tag("ul", *values, class_="values") if values else USUAL
    return [fold(alike.hosts), str(len(alike.hosts)), verdicts, unlike]


def facts_table(cluster: ClusterReport, level: str) -> Element | None:
    """The facts that differ, with the usual value; those of which each node has its own last."""
    if not cluster.differences:
        return None
    lacking = missing(cluster.differences)
    told = {name for names in lacking.values() for name in names}
    shown = [difference for difference in cluster.differences if difference.fact not in told]
    shown.sort(key=lambda difference: differs_everywhere(len(cluster.nodes), difference))
    lines = [_fact_line(difference, len(cluster.nodes)) for difference in shown]
    for hosts, names in lacking.items():
        lines.append([counted(len(names), "fact"), "", f"missing on {hosts}: {', '.join(names)}"])
    titles = ("fact", "usual value", "other values")
    table = text_table(titles, lines, "Facts that differ")
    title = f"{counted(len(cluster.differences), 'fact')} not the same on all nodes"
    return section("What differs", foldable(title, table, len(lines)), level=level)


def _fact_line(difference: Difference, nodes: int) -> list[str | Element]:
    usual = f"{difference.usual} on {difference.usual_hosts}" if difference.usual else "none"
    if differs_everywhere(nodes, difference):
        usual = OWN_VALUE
    return [difference.fact, usual, odd_text(difference)]


def folded_nodes(cluster: ClusterReport, level: str) -> Element:
    """Each node with its findings, the worst first, all folded."""
    unlike = _unlike(cluster)
    named = zip(node_names(cluster.nodes), cluster.nodes, strict=True)
    nodes = (
        tag("details", _summary(name, report), *node_parts(report, unlike.get(name, {})))
        for name, report in sorted(named, key=_gravity)
    )
    return section("Each node", tag("div", *nodes, class_="folded"), level=level)


def _gravity(named: tuple[str, CheckReport]) -> tuple[int, int]:
    _, report = named
    bad = sum(grade(finding) in BAD for finding in report.findings)
    return SEVERITY.index(report.verdict), -bad


def _summary(name: str, report: CheckReport) -> Element:
    verdict = report.verdict.value
    count = Counter(map(grade, report.findings))
    findings = ", ".join(f"{count[word]} {word}" for word in BAD if count[word])
    badge = tag("strong", verdict, class_=f"badge v-{verdict}")
    return tag("summary", tag("b", name), " ", badge, f" {findings}" if findings else None)


def node_parts(report: CheckReport, unlike: Unlike) -> Iterator[Element | None]:
    """What a node has that others do not, what is wrong, and the names of all other checks."""
    when = f", read {report.at}" if report.at else ""
    if report.source or when:
        yield tag("p", f"{report.source or report.host}{when}", class_="note")
    if unlike:
        values = "; ".join(f"{fact}: {value}" for fact, value in unlike.items())
        yield tag("p", f"unlike the others: {values}")
    bad = [finding for finding in report.findings if grade(finding) in BAD]
    if bad:
        bad.sort(key=lambda finding: GRADES.index(grade(finding)))
        titles = ("check", "verdict", "finding", "seen", "fix")
        yield text_table(titles, map(_finding_line, bad), f"Findings on {report.host}")
    for mute in report.muted:
        yield tag("p", f"muted until {mute.until}: {headline(mute.finding)} ({mute.reason})")
    yield from _others(report)


def _finding_line(finding: ReportedFinding) -> list[str | Element]:
    evidence_texts = [
        f"{evidence.where}: {evidence.seen}"
        + (f", expected {evidence.expected}" if evidence.expected else "")
        for evidence in finding.evidence[:MAX_EVIDENCE]
    ]
    verdict = tag("span", grade(finding), class_=f"v-{finding.verdict.value}")
    check = f"{finding.id} {finding.name}"
    return [check, verdict, headline(finding), "; ".join(evidence_texts), finding.fix]


def _others(report: CheckReport) -> Iterator[Element]:
    """The names of the checks without a fault: no data, pass, skip."""
    bad = {finding.id for finding in report.findings if grade(finding) in BAD}
    for word in GRADES:
        if word in BAD:
            continue
        names = dict.fromkeys(
            finding.name
            for finding in report.findings
            if grade(finding) == word and finding.id not in bad
        )
        if names:
            yield tag("p", f"{len(names)} {word}: {', '.join(names)}", class_="note")
