"""What `busbw check` prints for one machine or several, and its exit code.

The functions at the end are for --watch-for and --since: they give the earlier reading, with which
checks see how counters rise.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from busbw.check import rdma_qos_check
from busbw.check import text as view
from busbw.check.base import Check
from busbw.check.machine import Machine
from busbw.check.registry import compare, read_now, read_then
from busbw.check.types import CheckReport, ClusterReport, exit_code, overall, worst
from busbw.cli.streams import answer, width
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.host.limited import within
from busbw.host.snapshot import parse_archive
from busbw.host.source import Live, Source

FORMATS = ("table", "json", "rdma_qos_check")
NAGIOS_WORST_LAST = (0, 1, 3, 2)


@dataclass(frozen=True, kw_only=True)
class Output:
    """How to print. If `fail_on` is WARN, a warning counts as a failure."""

    format_name: str
    everything: bool
    brief: bool
    fail_on: Verdict

    def print_one(self, report: CheckReport) -> int:
        """Print the report of a machine; returns the exit code."""
        report.verdict = overall(report.findings, self.fail_on)
        if self.brief:
            code, line = view.brief(report, self.fail_on)
            answer(line)
            return code
        if self.format_name == "json":
            _print_json(report)
        elif self.format_name == "rdma_qos_check":
            answer(rdma_qos_check.text(report))
        else:
            answer(view.text(report, width(), everything=self.everything))
        return int(exit_code(report.verdict))

    def print_several(self, cluster: ClusterReport) -> int:
        """Print the reports of several machines, and what differs between them; returns the exit
        code.
        """
        for report in cluster.nodes:
            report.verdict = overall(report.findings, self.fail_on)
        if self.brief:
            return self._print_lines(cluster)
        if self.format_name == "rdma_qos_check":
            raise UsageError(
                "--format rdma_qos_check is for one machine",
                "use it without --hosts and with one --from",
            )
        if self.format_name == "json":
            _print_json(cluster)
        else:
            answer(view.cluster_text(cluster, width(), everything=self.everything))
        return int(exit_code(_verdict(cluster)))

    def _print_lines(self, cluster: ClusterReport) -> int:
        """Print a line for each machine; returns the exit code of the worst."""
        lines = [view.brief(report, self.fail_on) for report in cluster.nodes]
        for host, reason in cluster.silent.items():
            lines.append(view.brief_without(host, reason, Verdict.FAIL))
        for file, reason in cluster.unreadable.items():
            lines.append(view.brief_without(file, reason, Verdict.UNKNOWN))
        answer("".join(line for _, line in lines))
        return max((code for code, _ in lines), key=NAGIOS_WORST_LAST.index, default=3)


def _print_json(report: CheckReport | ClusterReport) -> None:
    answer(msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n")


def _verdict(cluster: ClusterReport) -> Verdict:
    """The verdict of the worst machine. A host that did not answer is bad; so are differences, if
    nothing else was asked.
    """
    if any(report.findings for report in cluster.nodes):
        verdicts = [report.verdict for report in cluster.nodes]
    else:
        verdicts = [Verdict.FAIL if cluster.differences else Verdict.PASS]
    if cluster.silent:
        verdicts.append(Verdict.FAIL)
    if cluster.unreadable:
        verdicts.append(Verdict.UNKNOWN)
    return worst(verdicts)


def refuse_watch_options(
    watch_s: float | None, since: str, files: Sequence[str], *, hosts: int
) -> None:
    """UsageError for options that exclude each other."""
    if watch_s and since:
        raise UsageError(
            "--watch-for and --since exclude each other",
            "--since with an older snapshot gives the longer time",
        )
    if watch_s and files:
        raise UsageError(
            "--watch-for reads this machine or --hosts, not a snapshot",
            "give the older snapshot to --since",
        )
    if since and (hosts or len(files) > 1):
        raise UsageError(
            "--since is for one machine", "busbw check trend compares snapshots of several"
        )


def read_first(checks: Sequence[Check], watch_s: float | None, limit_s: float) -> Machine | None:
    """This machine, read now within `limit_s`; returns after `watch_s` seconds. Without `watch_s`
    None, at once.
    """
    if not watch_s:
        return None
    start_s = time.monotonic()
    archive = within(lambda source: read_now(source, checks), Live(), limit_s=limit_s)
    time.sleep(max(0.0, watch_s - (time.monotonic() - start_s)))
    return Machine(parse_archive(archive, "the first reading"))


def read_earlier(since: str, source: Source) -> Machine:
    """The machine of a snapshot; UsageError if it is not an earlier one of the same machine."""
    earlier = read_then(since)
    compare(since, earlier, Machine(source))
    return earlier
