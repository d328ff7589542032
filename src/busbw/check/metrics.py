"""The verdicts of checks as metrics, for node_exporter's textfile collector."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from busbw.check.types import GRADES, CheckReport, ClusterReport, ReportedFinding, grade, node_names
from busbw.core.finding import Verdict
from busbw.ui.metric_text import GAUGE, Labels, MetricText

VERDICT = "busbw_check_verdict"
FINDINGS = "busbw_check_findings"
HOST_VERDICT = "busbw_check_host_verdict"
MUTED = "busbw_check_muted_findings"
DIFFERENT = "busbw_check_different_facts"
ANSWERED = "busbw_check_answered"
TIME = "busbw_check_timestamp_seconds"
# The meaning of each metric, and its labels.
METRICS = {
    VERDICT: (
        "1 for each check, with the worst verdict of its parts",
        ("host", "id", "check", "layer", "verdict"),
    ),
    FINDINGS: (
        "findings that fail, warn or are unknown, by check and part of the machine",
        ("host", "id", "check", "layer", "verdict", "subject"),
    ),
    HOST_VERDICT: ("1 for each host, with the verdict on the whole host", ("host", "verdict")),
    MUTED: ("findings that the file of --expect accepts, and that do not count", ("host",)),
    DIFFERENT: ("facts in which the host is unlike most of the hosts checked with it", ("host",)),
    ANSWERED: ("1 if the host could be checked", ("host",)),
    TIME: ("time at which the host was read", ("host",)),
}
SHOWN = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN)


def machine_text(report: CheckReport) -> str:
    page = MetricText()
    _add_report(page, report.host, report)
    return page.text()


def cluster_text(cluster: ClusterReport, *, compared: bool = True) -> str:
    """The metrics of several machines, and of those that could not be checked; without those of
    the differences if the machines were not `compared`.
    """
    page = MetricText()
    different: Counter[str] = Counter()
    for difference in cluster.differences:
        for hosts in difference.odd.values() if difference.usual else ():
            different.update(hosts)
    for host, report in zip(_distinct_names(cluster.nodes), cluster.nodes, strict=True):
        _add_report(page, host, report)
        if compared:
            _add(page, DIFFERENT, different[host], host)
    for host in (*cluster.silent, *cluster.unreadable):
        _add(page, ANSWERED, 0, host)
    return page.text()


def _distinct_names(reports: Sequence[CheckReport]) -> list[str]:
    """What to call each node; a number follows the name of a second host of one name."""
    count: Counter[str] = Counter()
    names = []
    for name in node_names(reports):
        count[name] += 1
        names.append(name if count[name] == 1 else f"{name} ({count[name]})")
    return names


def _add_report(page: MetricText, host: str, report: CheckReport) -> None:
    for finding in _worst_of_each_check(report.findings):
        verdict = grade(finding).replace(" ", "_")
        _add(page, VERDICT, 1, host, finding.id, finding.name, finding.layer, verdict)
    for labels, count in _by_part(report.findings).items():
        _add(page, FINDINGS, count, host, *labels)
    if report.findings:
        _add(page, HOST_VERDICT, 1, host, report.verdict.value)
    _add(page, MUTED, len(report.muted), host)
    _add(page, ANSWERED, 1, host)
    with contextlib.suppress(ValueError):  # a snapshot may have any text, and need not have a time
        _add(page, TIME, datetime.fromisoformat(report.at).timestamp(), host)


def _add(page: MetricText, metric: str, value: float, *values: str) -> None:
    meaning, names = METRICS[metric]
    labels: Labels = tuple(zip(names, values, strict=True))
    page.add(metric, GAUGE, meaning, labels, value)


def _worst_of_each_check(findings: Sequence[ReportedFinding]) -> list[ReportedFinding]:
    worst: dict[str, ReportedFinding] = {}
    for finding in findings:
        before = worst.setdefault(finding.id, finding)
        if GRADES.index(grade(finding)) < GRADES.index(grade(before)):
            worst[finding.id] = finding
    return list(worst.values())


def _by_part(findings: Sequence[ReportedFinding]) -> Counter[tuple[str, ...]]:
    """How many findings need attention, by the labels after the host's."""
    return Counter(
        (finding.id, finding.name, finding.layer, finding.verdict.value, finding.subject)
        for finding in findings
        if finding.verdict in SHOWN and not finding.optional
    )
