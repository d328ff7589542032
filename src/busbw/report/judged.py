"""The findings of all kinds of files as those of a check, so that a report groups them as those of
nodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from busbw.check.trend.text import differs
from busbw.check.trend.types import TrendReport
from busbw.check.types import CheckReport, ClusterReport, CommandReport, Diagnosis, ReportedFinding
from busbw.core.comparison import Comparison
from busbw.core.finding import RunFinding, Verdict
from busbw.core.host_ranges import fold
from busbw.core.link_samples import WatchInterval
from busbw.core.result import Outcome, Result
from busbw.core.sizes import format_size
from busbw.history.comparison_text import summary
from busbw.job.live.episodes import key
from busbw.job.live.types import JobInterval
from busbw.job.types import JobReport
from busbw.link.text import suspect_line
from busbw.link.types import LinkReport, SuspectReport
from busbw.model.explanation_text import compared
from busbw.model.findings import all_findings
from busbw.model.types import Explanation
from busbw.report.file_kinds import FileContent
from busbw.transfer.types import TransferReport
from busbw.ui.number_formats import bandwidth_text
from busbw.watch.over_time import by_host


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """What a file says of one host, or of hosts that its findings name; `section` is the id of its
    part of the page.
    """

    report: CheckReport
    file: str
    section: str


def of_sweep(result: Result, source: str) -> CheckReport:
    """The findings of a run, on all its hosts."""
    return CheckReport(host=_hosts(result), source=source, findings=_of_run(result.findings))


def of_document(document: FileContent) -> list[CheckReport]:
    """A report for each host, or one whose findings name theirs; none for a kind of file that
    holds no findings.
    """
    if watched := document.intervals_of(WatchInterval):
        return [_of_watch(host.host, host.intervals) for host in by_host(watched)]
    if job := document.intervals_of(JobInterval):
        return _of_job_watch(job)
    if isinstance(document.held, Outcome):
        return [_of_outcome(document.held)]
    judge = JUDGES.get(type(document.held))
    return judge(document.held) if judge else []


def _of_outcome(result: Outcome) -> CheckReport:
    """The findings of a run of any kind, on all its hosts; it passes if it ended without a fault
    that they name.
    """
    found = all_findings(result)
    if result.wrong() and not any(one.verdict is Verdict.FAIL for one in found):
        found.append(RunFinding("data", Verdict.FAIL, "wrong data"))
    ended = result.complete and result.measured
    return CheckReport(
        host=_hosts(result),
        findings=[  # each by itself: those of one id are of other backends or sizes
            _finding(f"{number:03} {one.id}", one.verdict, one.message)
            for number, one in enumerate(found)
        ],
        verdict=Verdict.PASS if ended and not found else Verdict.UNKNOWN,
    )


def _hosts(result: Outcome) -> str:
    return fold(device.host for device in result.world.devices if device.host)


def _of_watch(host: str, intervals: Sequence[WatchInterval]) -> CheckReport:
    seen = {
        (said.link, said.pattern): _finding(said.pattern, said.verdict, said.message, said.link)
        for watched in intervals
        for said in watched.findings
    }
    return CheckReport(host=host, findings=list(seen.values()))


def _of_job_watch(intervals: Sequence[JobInterval]) -> list[CheckReport]:
    """Each thing that was wrong with the job, as it was last said."""
    seen = {
        key(found): _finding(found.kind, found.verdict, found.message)
        for found in intervals
        if found.verdict in (Verdict.FAIL, Verdict.WARN)
    }
    return _one(list(seen.values()))


def _of_cluster(cluster: ClusterReport) -> list[CheckReport]:
    lost = [
        (host, _finding("node", Verdict.FAIL, f"did not answer: {reason}"))
        for host, reason in cluster.silent.items()
    ]
    lost += [
        (file, _finding("node", Verdict.UNKNOWN, f"cannot be read: {reason}"))
        for file, reason in cluster.unreadable.items()
    ]
    return cluster.nodes + [CheckReport(host=name, findings=[finding]) for name, finding in lost]


def _of_suspects(report: SuspectReport) -> list[CheckReport]:
    slow = [("slow", Verdict.FAIL, suspect_line(suspect).strip()) for suspect in report.suspects]
    doubts = [("doubt", Verdict.UNKNOWN, doubt) for doubt in report.doubts]
    return _one([_finding(*each) for each in slow + doubts])


def _of_trend(report: TrendReport) -> list[CheckReport]:
    odd = [_finding("trend", Verdict.WARN, differs(odd)) for odd in report.odd]
    reasons = [
        _finding("trend", Verdict.UNKNOWN, f"{host}: {reason}")
        for host, reason in report.reasons.items()
    ]
    faults = [
        _finding(fault.name, fault.verdict, f"{fault.message}, on {fold(fault.hosts)}")
        for fault in report.faults
        if not fault.optional
    ]
    return _one(odd + faults + reasons)


def _of_comparison(comparison: Comparison) -> list[CheckReport]:
    if not comparison.beyond():
        return []
    return _one([_finding("compare", Verdict.FAIL, summary(comparison))])


def _of_explanation(answer: Explanation) -> list[CheckReport]:
    said = "" if answer.fits else "above the bounds of all algorithms"
    if answer.verdict == "slower":
        said = compared(answer).partition("\n")[0]
    if not said:
        return []
    measured = f"{bandwidth_text(answer.busbw)} GB/s at {format_size(answer.size_bytes)}"
    return _one([_finding("explain", Verdict.FAIL, f"{measured} is {said}")])


def _of_run(findings: Iterable[RunFinding]) -> list[ReportedFinding]:
    return [_finding(found.id, found.verdict, found.message) for found in findings]


def _finding(name: str, verdict: Verdict, message: str, subject: str = "") -> ReportedFinding:
    return ReportedFinding(
        id=name, name=name, layer="", verdict=verdict, subject=subject, message=message
    )


def _one(findings: list[ReportedFinding]) -> list[CheckReport]:
    """A report whose findings name their hosts."""
    return [CheckReport(host="", findings=findings)]


JUDGES: Mapping[type, Callable[[Any], list[CheckReport]]] = {
    CheckReport: lambda report: [report],
    ClusterReport: _of_cluster,
    CommandReport: lambda report: _one([each for line in report.lines for each in line.findings]),
    Comparison: _of_comparison,
    Diagnosis: lambda launch: _one(
        [_finding(stage.name, stage.verdict, stage.message) for stage in launch.stages]
    ),
    Explanation: _of_explanation,
    JobReport: lambda job: _one([_finding("job", job.verdict, job.message)]),
    LinkReport: lambda report: _one(_of_run(report.findings)),
    SuspectReport: _of_suspects,
    TransferReport: lambda report: _one(_of_run(report.findings)),
    TrendReport: _of_trend,
}
