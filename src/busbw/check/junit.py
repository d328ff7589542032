"""The findings of machines as JUnit's XML: a suite for each machine, a case for each finding."""

from busbw.check.changes import ChangeReport, WorseFault
from busbw.check.differences_text import values_text
from busbw.check.groups import headline
from busbw.check.types import CheckReport, ClusterReport, Fault, ReportedFinding, grade
from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.ui.junit import ERROR, FAILURE, SKIPPED, Case, junit

_BAD = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN)
_OUTCOMES = {Verdict.FAIL: FAILURE, Verdict.UNKNOWN: ERROR, Verdict.SKIP: SKIPPED}


def machine(report: CheckReport, fail_on: Verdict) -> str:
    """The findings of one machine. A warning passes, but not with `fail_on` WARN."""
    return junit({report.host: _cases(report, fail_on)})


def cluster(report: ClusterReport, fail_on: Verdict) -> str:
    """The findings of several machines, and those that could not be read."""
    suites = {node.host: _cases(node, fail_on) for node in report.nodes}
    for outcome, unread in ((FAILURE, report.silent), (ERROR, report.unreadable)):
        for host, reason in unread.items():
            suites.setdefault(host, []).append(_told("node", "report", outcome, reason))
    if report.differences:
        alone = not any(node.findings for node in report.nodes)
        outcome = FAILURE if alone or fail_on is Verdict.WARN else ""
        suites["differences"] = [
            _told("differences", one.fact, outcome, values_text(one)) for one in report.differences
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
            suites[host].append(_told("changed", fact.fact, outcome, text))
    for host in report.only_before:
        suites[host] = [_told("node", "report", ERROR, f"only in {report.before}")]
    for file, reason in report.unreadable.items():
        suites[file] = [_told("node", "report", ERROR, reason)]
    for cases in suites.values():
        cases += [] if cases else [Case("node", "report")]
    return junit(suites)


def _add(suites: dict[str, list[Case]], kind: str, fault: Fault, outcome: str) -> None:
    was = f"\nwas: {fault.was}" if isinstance(fault, WorseFault) else ""
    output = f"{fault.verdict.value} on {fold(fault.hosts)}: {fault.message}{was}"
    for host in fault.hosts:
        name = f"{fault.id} {fault.name}"
        suites[host].append(Case(kind, name, outcome, fault.message, output=output))


def _told(kind: str, name: str, outcome: str, text: str) -> Case:
    """A case whose text is also shown where it passes."""
    return Case(kind, name, outcome, text, output=text)


def _outcome(fault: Fault) -> str:
    return _OUTCOMES.get(fault.verdict, "")


def _cases(report: CheckReport, fail_on: Verdict) -> list[Case]:
    cases = [_case(report.host, finding, fail_on) for finding in report.findings]
    if all(case.outcome == SKIPPED for case in cases):
        cases.append(_told("node", "report", ERROR, "nothing was judged"))
    return cases


def _case(host: str, finding: ReportedFinding, fail_on: Verdict) -> Case:
    """A value that is not offered on this machine does not count: it is skipped."""
    outcome = FAILURE if finding.verdict is fail_on else _OUTCOMES.get(finding.verdict, "")
    lines = [
        f"{one.where}: {one.seen}" + (f", expected {one.expected}" if one.expected else "")
        for one in finding.evidence
    ]
    lines += [f"fix: {finding.fix}"] if finding.fix else []
    head = f"{grade(finding)} on {host}: {headline(finding)}"
    return Case(
        finding.layer,
        " ".join(filter(None, (finding.id, finding.name, finding.subject))),
        SKIPPED if finding.optional else outcome,
        finding.message,
        "\n".join(lines),
        "\n".join([head, *lines]) if finding.verdict in _BAD else "",
    )
