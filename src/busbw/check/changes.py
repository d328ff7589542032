"""Snapshots of two times compared: which findings are new, worse, gone or unchanged, by fault, and
which facts of the hosts have changed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.check.accepted_facts import is_accepted
from busbw.check.alike import HostText, amount, merged_text, pattern
from busbw.check.groups import FindingGroup, as_fault, group, headline
from busbw.check.rates import HOUR_S, UNKNOWN_RATES
from busbw.check.types import (
    MISSING,
    SHOWN_GRADES,
    CheckReport,
    Evidence,
    Fault,
    NodeFindings,
    ReportedFinding,
    grade,
)
from busbw.core.finding import Verdict
from busbw.core.shown import Shown

BAD = ("fail", "unknown", "warn")
_JUDGED = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
# Checks of counters that begin at 0 when a machine boots.
OF_COUNTERS = (
    *("BW032", "BW051", "BW052", "BW076", "BW077", "BW078", "BW079", "BW081", "BW082", "BW084"),
    *("BW099", "BW100", "BW154"),
)
Key = tuple[str, ...]
_COUNT = re.compile(r"\b\d+\b")


class WorseFault(Fault, frozen=True, kw_only=True):
    """A fault that was there before, less bad."""

    was: Annotated[str, Meta(description="the message before")]


class ChangedFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of hosts that is not what it was; `(none)` where a host does not have it."""

    fact: str
    before: str
    after: str
    hosts: Annotated[list[str], Meta(description="with the same two values")]


class ChangeReport(
    Shown, msgspec.Struct, tag="busbw.check-changes/1", tag_field="schema", kw_only=True
):
    """The findings on the nodes of two sets of snapshots, and the facts that have changed.

    A finding is unchanged if the same check says the same of the same part but for numbers, and
    none of these shows that it is worse. Of several snapshots of one node the latest is compared.
    """

    before: str
    after: str
    nodes: Annotated[list[str], Meta(description="with a snapshot on both sides")]
    muted: Annotated[list[str], Meta(description="nodes with findings that a file accepts")]
    only_before: list[str]
    only_after: Annotated[list[str], Meta(description="all of their findings are new")]
    new: list[Fault]
    worse: Annotated[list[WorseFault], Meta(description="found before, with better values")]
    gone: list[Fault]
    booted: Annotated[
        list[Fault],
        Meta(description="of counters, which the boot of the host since then has set to 0"),
    ]
    unchanged: list[Fault]
    unjudged: Annotated[
        list[Fault], Meta(description="found before; afterwards the check has no data")
    ]
    facts: Annotated[
        list[ChangedFact], Meta(description="that have changed, those on few nodes first")
    ]
    unreadable: Annotated[
        dict[str, str], Meta(description="snapshots that hold no machine, with the reason")
    ]

    def verdicts(self) -> list[Verdict]:
        """Those of the new and worse findings, a warning for each changed fact, and unknown for
        what is missing or could not be read.
        """
        missing = [*self.only_before, *self.unreadable, *self.unjudged]
        found = [fault.verdict for fault in (*self.new, *self.worse)]
        return found + [Verdict.WARN] * len(self.facts) + [Verdict.UNKNOWN] * len(missing)


@dataclass(frozen=True, slots=True)
class Side:
    """What was read at one of the two times: the nodes by snapshot, and why others could not be."""

    name: str
    snapshots: Mapping[str, NodeFindings]
    unreadable: Mapping[str, str]

    def latest(self) -> dict[str, NodeFindings]:
        """The latest node of each host."""
        in_order = sorted(self.snapshots.values(), key=lambda node: node.report.at)
        nodes = {node.report.host: node for node in in_order}
        return {host: nodes[host] for host in sorted(nodes)}


def changes(before: Side, after: Side) -> ChangeReport:
    """The second side compared with the first."""
    first, second = before.latest(), after.latest()
    old = {host: node.report for host, node in first.items()}
    new = {host: node.report for host, node in second.items()}
    both = [host for host in old if host in new]
    known = {host: _by_key(old[host]) for host in both}
    now = {host: _by_key(new[host]) for host in both}

    def risen(host: str, finding: ReportedFinding) -> str:
        before = first.get(host)
        return _with_rise(_of_part(before, finding), finding, _hours(before, second[host]))

    def is_new(host: str, finding: ReportedFinding) -> bool:
        return _key(host, finding) not in known.get(host, ())

    def is_worse(host: str, finding: ReportedFinding) -> bool:
        return not is_new(host, finding) and _worse(known[host][_key(host, finding)], finding)

    def is_lost(host: str, finding: ReportedFinding) -> bool:
        return host in now and _key(host, finding) not in now[host]

    def is_judged(host: str, finding: ReportedFinding) -> bool:
        return is_lost(host, finding) and _is_judged(finding, new[host].findings)

    def is_gone(host: str, finding: ReportedFinding) -> bool:
        return is_judged(host, finding) and not is_reset(host, finding)

    def is_reset(host: str, finding: ReportedFinding) -> bool:
        return is_judged(host, finding) and _is_reset(finding, first[host], second[host])

    def is_unchanged(host: str, finding: ReportedFinding) -> bool:
        return not is_new(host, finding) and not is_worse(host, finding)

    def is_unjudged(host: str, finding: ReportedFinding) -> bool:
        return is_lost(host, finding) and not is_judged(host, finding)

    return ChangeReport(
        before=before.name,
        after=after.name,
        nodes=both,
        muted=[host for host in new if new[host].muted or not second[host].compared],
        only_before=[host for host in old if host not in new and first[host].compared],
        only_after=[host for host in new if host not in old],
        new=[_risen_fault(one, risen) for one in _groups(new, is_new)],
        worse=[_worse_fault(one, known, risen) for one in _groups(new, is_worse)],
        gone=_faults(old, is_gone),
        booted=_faults(old, is_reset),
        unchanged=[_risen_fault(one, risen) for one in _groups(new, is_unchanged)],
        unjudged=_faults(old, is_unjudged),
        facts=_changed_facts({host: (first[host], second[host]) for host in both}),
        unreadable={**before.unreadable, **after.unreadable},
    )


def _is_reset(finding: ReportedFinding, before: NodeFindings, after: NodeFindings) -> bool:
    """Whether a boot of the host has since set to 0 what the finding counted."""
    booted = bool(before.boot and after.boot) and before.boot != after.boot
    return booted and finding.id in OF_COUNTERS


def _by_key(report: CheckReport) -> dict[Key, ReportedFinding]:
    """The findings of a host; of several of one fault the first, which is the worst."""
    findings: dict[Key, ReportedFinding] = {}
    for finding in report.findings:
        findings.setdefault(_key(report.host, finding), finding)
    return findings


def _key(host: str, finding: ReportedFinding) -> Key:
    """What is equal for findings of one fault on one part of a host."""
    text = HostText(host, headline(finding))
    return (grade(finding), finding.id, finding.subject, *pattern(text))


def _worse(before: ReportedFinding, after: ReportedFinding) -> bool:
    """Whether a finding has become worse: by its weight, or without one if a value that was read
    is farther from the expected one.
    """
    if before.weight or after.weight:
        return after.weight > before.weight
    return any(
        _distance(later) > _distance(earlier)
        for earlier, later in zip(before.evidence, after.evidence, strict=False)
        if earlier.where == later.where
    )


def _distance(evidence: Evidence) -> float:
    """From the value that was read to the expected one; 0 if one of them is no number."""
    seen, expected = amount(evidence.seen), amount(evidence.expected)
    return 0.0 if seen is None or expected is None else abs(seen - expected)


def _is_judged(finding: ReportedFinding, later: Sequence[ReportedFinding]) -> bool:
    """Whether the check of the finding judged its part later."""
    of_check = [other for other in later if other.id == finding.id]
    of_part = [other for other in of_check if other.subject in ("", finding.subject)]
    if any(other.verdict is Verdict.UNKNOWN for other in of_part):
        return False
    if any(other.verdict in _JUDGED for other in of_part):
        return True
    # many checks name the parts with a fault only
    there = any(other.subject == finding.subject for other in later if other.verdict in _JUDGED)
    return there and any(other.verdict in _JUDGED for other in of_check)


def _groups(
    reports: Mapping[str, CheckReport], chosen: Callable[[str, ReportedFinding], bool]
) -> list[FindingGroup]:
    """The findings that `chosen` takes, by fault."""
    nodes = []
    for host, report in reports.items():
        findings = [
            finding
            for finding in report.findings
            if grade(finding) in BAD and chosen(host, finding)
        ]
        nodes.append(msgspec.structs.replace(report, findings=findings))
    return group(nodes, SHOWN_GRADES)


def _faults(
    reports: Mapping[str, CheckReport], chosen: Callable[[str, ReportedFinding], bool]
) -> list[Fault]:
    return [as_fault(one) for one in _groups(reports, chosen)]


def _hours(before: NodeFindings | None, after: NodeFindings) -> float:
    """From one reading of a host to the other; 0 if it was booted since, or a time is unknown."""
    if before is None or before.boot != after.boot:
        return 0.0
    try:
        begin, end = (datetime.fromisoformat(node.report.at) for node in (before, after))
        return (end - begin).total_seconds() / HOUR_S
    except (TypeError, ValueError):
        return 0.0


def _of_part(node: NodeFindings | None, finding: ReportedFinding) -> ReportedFinding | None:
    """What the check of a finding said of its part on a node; None if that is not one verdict."""
    findings = node.report.findings if node else []
    same = [one for one in findings if (one.id, one.subject) == (finding.id, finding.subject)]
    return same[0] if len(same) == 1 and same[0].verdict in _JUDGED else None


def _with_rise(before: ReportedFinding | None, after: ReportedFinding, hours: float) -> str:
    """`150 errors since the driver was loaded; 7 more in 168 h, 0.042 an hour`: what a finding says
    of a total, with its rise instead of that this is unknown; '' for other findings.
    """
    text, counted = _total_text(after), _COUNT.search(before.message) if before else None
    if text == headline(after) or hours <= 0 or before is None or counted is None:
        return ""
    by = after.weight - (before.weight or int(counted[0]))  # what has passed has no weight
    if by < 0:
        return ""
    return f"{text}; {by:.0f} more in {_digits(hours)} h, {_digits(by / hours)} an hour"


def _total_text(finding: ReportedFinding) -> str:
    text = headline(finding)
    for words in UNKNOWN_RATES:
        text = text.removesuffix(f"; {words}")
    return text


def _digits(value: float) -> str:
    """`168`, `0.042`."""
    return f"{value:.0f}" if value >= 10 or not value else f"{value:.2g}"


Risen = Callable[[str, ReportedFinding], str]


def _risen_fault(one: FindingGroup, risen: Risen) -> Fault:
    """The fault; where both times show by how much its counters rose, it says so."""
    fault = as_fault(one)
    texts = [HostText(item.node, risen(item.node, item.finding)) for item in one.findings]
    if not all(text.text for text in texts):
        return fault
    return msgspec.structs.replace(fault, message=merged_text(texts))


def _worse_fault(
    worse: FindingGroup, known: Mapping[str, Mapping[Key, ReportedFinding]], risen: Risen
) -> WorseFault:
    """The fault with what its findings said before."""
    texts = []
    for item in worse.findings:
        before = known[item.node][_key(item.node, item.finding)]
        texts.append(HostText(item.node, _total_text(before)))
    fault = msgspec.structs.asdict(_risen_fault(worse, risen))
    return WorseFault(**fault, was=merged_text(texts))


def _changed_facts(nodes: Mapping[str, tuple[NodeFindings, NodeFindings]]) -> list[ChangedFact]:
    """The facts that differ between the two times, hosts with the same two values together, but
    for values of muted faults.
    """
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for host, (old, new) in nodes.items():
        for fact in dict.fromkeys((*old.facts, *new.facts)):
            before, after = old.facts.get(fact, MISSING), new.facts.get(fact, MISSING)
            if before != after and not is_accepted(fact, old, new):
                hosts.setdefault((fact, before, after), []).append(host)
    changed = [
        ChangedFact(fact=fact, before=before, after=after, hosts=names)
        for (fact, before, after), names in hosts.items()
    ]
    return sorted(changed, key=lambda one: len(one.hosts))
