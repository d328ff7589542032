"""What `busbw check` prints for one machine or several, and its exit code."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.check import junit, metrics, rdma_qos_check
from busbw.check.brief import brief, brief_cluster
from busbw.check.cluster_text import cluster_text
from busbw.check.groups import faults
from busbw.check.text import text
from busbw.check.types import CheckReport, ClusterReport, overall, worst
from busbw.cli.options.parameters import given_options
from busbw.cli.streams import print_out
from busbw.cli.terminal import height, width
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict, exit_of
from busbw.measure.record import check_writable, save

TABLE, JSON, QOS, PROMETHEUS = "table", "json", "rdma_qos_check", "prometheus"
JUNIT = "junit"
FORMATS = (TABLE, JSON, JUNIT, QOS, PROMETHEUS)


def check_output(file: str, *, other: bool, brief: bool) -> None:
    """UsageError if --output FILE could not be written, or if the command line asks for `other`
    output, which goes to stdout, or for another form of `brief` output than a monitor reads.
    """
    if brief and (options := ", ".join(given_options(("format_name", "everything")))):
        raise UsageError(
            f"{options} with --nagios: a monitor is told one line", f"leave out {options}"
        )
    if file and other:
        raise UsageError(
            f"--output {file}: --list and --learn print to stdout",
            "redirect it: busbw check --learn > node.toml",
        )
    if file:
        check_writable(Path(file), what=f"--output {file}")


@dataclass(frozen=True, kw_only=True)
class CheckOutput:
    """How to print. If `fail_on` is WARN, a warning counts as a failure.

    `file` is the file that has the output instead of stdout; '' for stdout. `chosen` is whether
    only some checks were asked for: then the nodes are not compared.
    """

    format_name: str
    everything: bool
    brief: bool
    fail_on: Verdict
    file: str = ""
    chosen: bool = False

    def print_one(self, report: CheckReport) -> int:
        """Print the report of a machine; returns the exit code."""
        report.verdict = overall(report.findings, self.fail_on)
        if self.brief:
            code, line = brief(report, self.fail_on)
            self._print(line)
            return code
        self._print(self._text_of_one(report))
        return int(exit_of([report.verdict]))

    def _text_of_one(self, report: CheckReport) -> str:
        if self.format_name == JSON:
            return _json(report)
        if self.format_name == JUNIT:
            return junit.machine(report, self.fail_on)
        if self.format_name == QOS:
            return rdma_qos_check.text(report)
        if self.format_name == PROMETHEUS:
            return metrics.machine_text(report)
        return text(report, width(), everything=self.everything)

    def print_several(self, cluster: ClusterReport) -> int:
        """Print the reports of several machines, and what differs between them; the exit code."""
        if self.chosen:
            cluster.differences = []
        for report in cluster.nodes:
            report.verdict = overall(report.findings, self.fail_on)
        if self.brief:
            code, line = brief_cluster(cluster, self._verdict(cluster), self.fail_on)
            self._print(line)
            return code
        self._print(self._text_of_several(cluster))
        return int(exit_of([self._verdict(cluster)]))

    def _text_of_several(self, cluster: ClusterReport) -> str:
        compared = not self.chosen
        if self.format_name == QOS:
            raise UsageError(
                "--format rdma_qos_check is for one machine",
                "use it without --hosts and with one --from",
            )
        if self.format_name == JSON:
            cluster.faults = faults(cluster.nodes)
            return _json(cluster)
        if self.format_name == JUNIT:
            return junit.cluster(cluster, self.fail_on)
        if self.format_name == PROMETHEUS:
            return metrics.cluster_text(cluster, compared=compared)
        lines = None if self.file else height()
        return cluster_text(cluster, width(), lines, everything=self.everything, compared=compared)

    def _verdict(self, cluster: ClusterReport) -> Verdict:
        """The verdict of the worst machine. A host that did not answer is bad; so are differences,
        if nothing else was asked, or if a warning is.
        """
        verdicts = [report.verdict for report in cluster.nodes]
        if not any(report.findings for report in cluster.nodes):
            verdicts = [Verdict.FAIL if cluster.differences else Verdict.PASS]
        elif cluster.differences and self.fail_on is Verdict.WARN:
            verdicts.append(Verdict.FAIL)
        if cluster.silent:
            verdicts.append(Verdict.FAIL)
        if cluster.unreadable:
            verdicts.append(Verdict.UNKNOWN)
        return worst(verdicts)

    def _print(self, printed: str) -> None:
        """Print the text, or replace the file with it at once; others can read the file."""
        if self.file:
            save(printed.encode(), Path(self.file), "name a file that you can write", shared=True)
        else:
            print_out(printed)


def _json(report: CheckReport | ClusterReport) -> str:
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
