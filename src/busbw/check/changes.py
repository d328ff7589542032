"""Snapshots of two times compared: which findings are new, gone or unchanged, by fault."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.check.alike import HostText, pattern
from busbw.check.groups import faults, headline
from busbw.check.types import CheckReport, ClusterReport, Fault, ReportedFinding, grade
from busbw.core.finding import Verdict
from busbw.core.shown import Shown

BAD = ("fail", "unknown", "warn")
_JUDGED = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)


class ChangeReport(
    Shown, msgspec.Struct, tag="busbw.check-changes/1", tag_field="schema", kw_only=True
):
    """The findings on the nodes of two sets of snapshots.

    A finding is unchanged if the same check says the same of the same part but for numbers. Of
    several snapshots of one node the latest is compared.
    """

    before: str
    after: str
    nodes: Annotated[list[str], Meta(description="with a snapshot on both sides")]
    only_before: list[str]
    only_after: Annotated[list[str], Meta(description="all of their findings are new")]
    new: list[Fault]
    gone: list[Fault]
    unchanged: list[Fault]
    unjudged: Annotated[
        list[Fault], Meta(description="found before; afterwards the check has no data")
    ]
    unreadable: Annotated[
        dict[str, str], Meta(description="snapshots that hold no machine, with the reason")
    ]

    def verdicts(self) -> list[Verdict]:
        """Those of the new findings, and unknown for what is missing or could not be read."""
        missing = [*self.only_before, *self.unreadable, *self.unjudged]
        return [fault.verdict for fault in self.new] + [Verdict.UNKNOWN] * len(missing)


def changes(before: str, first: ClusterReport, after: str, second: ClusterReport) -> ChangeReport:
    """The findings of the second reports compared with those of the first; `before` and `after`
    name the two.
    """
    old, new = _latest(first), _latest(second)
    both = [host for host in old if host in new]
    known = {host: {_key(host, finding) for finding in old[host].findings} for host in both}
    now = {host: {_key(host, finding) for finding in new[host].findings} for host in both}

    def is_new(host: str, finding: ReportedFinding) -> bool:
        return _key(host, finding) not in known.get(host, ())

    def is_lost(host: str, finding: ReportedFinding) -> bool:
        return host in now and _key(host, finding) not in now[host]

    def is_gone(host: str, finding: ReportedFinding) -> bool:
        return is_lost(host, finding) and _is_judged(finding, new[host].findings)

    return ChangeReport(
        before=before,
        after=after,
        nodes=both,
        only_before=[host for host in old if host not in new],
        only_after=[host for host in new if host not in old],
        new=_faults(new, is_new),
        gone=_faults(old, is_gone),
        unchanged=_faults(new, lambda host, finding: not is_new(host, finding)),
        unjudged=_faults(
            old, lambda host, finding: is_lost(host, finding) and not is_gone(host, finding)
        ),
        unreadable=first.unreadable | second.unreadable,
    )


def _latest(cluster: ClusterReport) -> dict[str, CheckReport]:
    """The latest report of each host."""
    in_order = sorted(cluster.nodes, key=lambda report: report.at)
    latest = {report.host: report for report in in_order}
    return {host: latest[host] for host in sorted(latest)}


def _key(host: str, finding: ReportedFinding) -> tuple[str, ...]:
    """What is equal for findings of one fault on one part of a host."""
    text = HostText(host, headline(finding))
    return (grade(finding), finding.id, finding.subject, *pattern(text))


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


def _faults(
    reports: dict[str, CheckReport], chosen: Callable[[str, ReportedFinding], bool]
) -> list[Fault]:
    """The faults among the findings that `chosen` takes, each with its nodes."""
    nodes = []
    for host, report in reports.items():
        findings = [
            finding
            for finding in report.findings
            if grade(finding) in BAD and chosen(host, finding)
        ]
        nodes.append(msgspec.structs.replace(report, findings=findings))
    return faults(nodes)
