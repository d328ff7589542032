"""What `busbw check` prints for one machine or several, and its exit code."""

from dataclasses import dataclass

import msgspec

from busbw.check import rdma_qos_check
from busbw.check.brief import brief, brief_cluster
from busbw.check.cluster_text import cluster_text
from busbw.check.groups import faults
from busbw.check.text import text
from busbw.check.types import CheckReport, ClusterReport, exit_code, overall, worst
from busbw.cli.streams import answer
from busbw.cli.terminal import height, width
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict

FORMATS = ("table", "json", "rdma_qos_check")


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
            code, line = brief(report, self.fail_on)
            answer(line)
            return code
        if self.format_name == "json":
            _print_json(report)
        elif self.format_name == "rdma_qos_check":
            answer(rdma_qos_check.text(report))
        else:
            answer(text(report, width(), everything=self.everything))
        return int(exit_code(report.verdict))

    def print_several(self, cluster: ClusterReport) -> int:
        """Print the reports of several machines, and what differs between them; returns the exit
        code.
        """
        for report in cluster.nodes:
            report.verdict = overall(report.findings, self.fail_on)
        if self.brief:
            code, line = brief_cluster(cluster, _verdict(cluster), self.fail_on)
            answer(line)
            return code
        if self.format_name == "rdma_qos_check":
            raise UsageError(
                "--format rdma_qos_check is for one machine",
                "use it without --hosts and with one --from",
            )
        if self.format_name == "json":
            cluster.faults = faults(cluster.nodes)
            _print_json(cluster)
        else:
            answer(cluster_text(cluster, width(), height(), everything=self.everything))
        return int(exit_code(_verdict(cluster)))


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
