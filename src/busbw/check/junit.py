"""The findings of machines as JUnit's XML: a suite for each machine, a case for each finding."""

from busbw.check.changes import ChangeReport
from busbw.check.types import CheckReport, ClusterReport, Fault, ReportedFinding
from busbw.core.finding import Verdict
from busbw.ui.junit import ERROR, FAILURE, SKIPPED, Case, junit

_OUTCOMES = {Verdict.FAIL: FAILURE, Verdict.UNKNOWN: ERROR, Verdict.SKIP: SKIPPED}


def machine(report: CheckReport, fail_on: Verdict) -> str:
    """The findings of one machine. A warning passes, but not with `fail_on` WARN."""
    return junit({report.host: _cases(report, fail_on)})


def cluster(report: ClusterReport, fail_on: Verdict) -> str:
    """The findings of several machines, and those that could not be read."""
    suites = {node.host: _cases(node, fail_on) for node in report.nodes}
    for outcome, unread in ((FAILURE, report.silent), (ERROR, report.unreadable)):
        for host, reason in unread.items():
            suites.setdefault(host, []).append(Case("node", "report", outcome, reason))
    if report.differences:
        alone = not any(node.findings for node in report.nodes)
        outcome = FAILURE if alone or fail_on is Verdict.WARN else ""
        suites["differences"] = [
            Case("differences", one.fact, outcome, f"usually {one.usual}", str(one.odd))
            for one in report.differences
        ]
    return junit(suites)


def changes(report: ChangeReport, fail_on: Verdict) -> str:
    """A suite for each node: what was found before passes, unless it is worse."""
    suites: dict[str, list[Case]] = {host: [] for host in (*report.nodes, *report.only_after)}
    for kind, faults in (("new", report.new), ("worse", report.worse)):
        for fault in faults:
            _add(suites, kind, fault, FAILURE if fault.verdict is fail_on else _outcome(fault))
    for kind, faults, outcome in (
        ("no data", report.unjudged, ERROR),
        ("gone", report.gone, ""),
        ("booted since", report.booted, SKIPPED),
        ("unchanged", report.unchanged, ""),
    ):
        for fault in faults:
            _add(suites, kind, fault, outcome)
    for fact in report.facts:
        outcome = FAILURE if fail_on is Verdict.WARN else ""
        for host in fact.hosts:
            text = f"{fact.before} -> {fact.after}"
            suites[host].append(Case("changed", fact.fact, outcome, text, output=text))
    for host in report.only_before:
        suites[host] = [Case("node", "report", ERROR, f"only in {report.before}")]
    for file, reason in report.unreadable.items():
        suites[file] = [Case("node", "report", ERROR, reason)]
    for cases in suites.values():
        cases += [] if cases else [Case("node", "report")]
    return junit(suites)


def _add(suites: dict[str, list[Case]], kind: str, fault: Fault, outcome: str) -> None:
    for host in fault.hosts:
        suites[host].append(Case(kind, f"{fault.id} {fault.name}", outcome, fault.message))


def _outcome(fault: Fault) -> str:
    return _OUTCOMES.get(fault.verdict, "")


def _cases(report: CheckReport, fail_on: Verdict) -> list[Case]:
    cases = [_case(finding, fail_on) for finding in report.findings]
    if all(case.outcome == SKIPPED for case in cases):
        cases.append(Case("node", "report", ERROR, "nothing was judged"))
    return cases


def _case(finding: ReportedFinding, fail_on: Verdict) -> Case:
    """A value that is not offered on this machine does not count: it is skipped."""
    outcome = FAILURE if finding.verdict is fail_on else _OUTCOMES.get(finding.verdict, "")
    evidence = [
        f"{one.where}: {one.seen}" + (f", expected {one.expected}" if one.expected else "")
        for one in finding.evidence
    ]
    return Case(
        finding.layer,
        " ".join(filter(None, (finding.id, finding.name, finding.subject))),
        SKIPPED if finding.optional else outcome,
        finding.message,
        "\n".join([*evidence, *filter(None, [finding.fix and f"fix: {finding.fix}"])]),
    )
