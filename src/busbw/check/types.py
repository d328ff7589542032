"""The findings of checks on machines and command lines, and the stages of a launch.

Also the verdict on a whole machine with its exit code.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from busbw.core.finding import Verdict
from busbw.core.host_ranges import fold
from busbw.core.shown import Shown, Tabular

SEVERITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS, Verdict.SKIP)
NO_DATA = "no data"
GRADES = ("fail", "unknown", "warn", NO_DATA, "pass", "skip")  # of findings, the worst first
SHOWN_GRADES = ("fail", "unknown", "warn", NO_DATA)  # what a report has without --all
_NAMELESS = ("", "localhost")
AS_ROOT = "sudo busbw check"  # the fix of a finding that only root can make
MISSING = "(none)"  # stands for a fact that a node does not have


class Evidence(msgspec.Struct, frozen=True):
    """One value that was read: its place, the value, and the value expected there.

    `expected` is '' if no particular value is expected.
    """

    where: str
    seen: str
    expected: str = ""


class Finding(msgspec.Struct, frozen=True):
    """The finding of a check on one part of a machine."""

    verdict: Verdict
    subject: str  # the part, like mlx5_0; '' is the whole machine
    message: str
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""  # '' if none is needed
    # unknown, but this kernel, driver, container or user is not given the value
    optional: bool = False
    # of the findings of a check with one verdict, the largest is the worst and stands first
    weight: float = 0.0


class ReportedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the check that made it."""

    id: str
    name: str
    layer: str
    verdict: Verdict
    subject: str
    message: str
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    stays: str = ""
    optional: bool = False
    weight: Annotated[
        float, Meta(description="of one check and verdict: larger is worse; 0 if it has none")
    ] = 0.0


class MutedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that an expectations file accepts until a day (ISO date).

    It does not count. `where` is the place of the mute.
    """

    finding: ReportedFinding
    reason: str
    until: str
    where: str


class CheckReport(Tabular, msgspec.Struct, tag="busbw.check/1", tag_field="schema", kw_only=True):
    """All findings on one machine, in the order of the checks."""

    host: str
    source: Annotated[str, Meta(description="a snapshot's name; empty for the live machine")] = ""
    read: Annotated[
        str, Meta(description="how much of a kernel log was read, if nothing else was")
    ] = ""
    at: str = ""  # ISO time of the reading
    no_earlier: Annotated[
        str, Meta(description="why counters are judged by their totals, though --since was given")
    ] = ""
    busbw: str = ""
    verdict: Verdict = Verdict.UNKNOWN  # of the whole machine, see busbw.check.types
    findings: list[ReportedFinding] = []
    muted: list[MutedFinding] = []


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that is not the same on all nodes.

    `usual` is the value of more than half of the nodes, '' if there is none; `usual_hosts` is their
    number. `odd` has the hosts with other values, by value.
    """

    fact: str
    usual: str
    usual_hosts: int
    odd: dict[str, list[str]]


class NodeFindings(msgspec.Struct, kw_only=True):
    """The findings on one node, and its facts by name.

    `compared` is whether its facts are: not while all of its checks are muted. With mutes, `parts`
    has the facts by part, and `accepted` the parts that show a muted fault ('': the whole node).
    """

    report: CheckReport
    facts: dict[str, str]
    compared: bool = True
    boot: str = ""  # the id of the machine's last boot
    parts: dict[str, dict[str, str]] = {}
    accepted: dict[str, list[str]] = {}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of one check on several nodes whose messages differ only in names and values."""

    id: str
    name: str
    layer: str
    verdict: Verdict
    message: Annotated[str, Meta(description="with these as ranges")]
    hosts: list[str]
    optional: bool = False
    under: Annotated[list[str], Meta(description="checks whose findings have the same cause")] = []
    same_in: Annotated[list[str], Meta(description="checks that have the same finding")] = []


class ClusterReport(
    Tabular, msgspec.Struct, tag="busbw.check-cluster/1", tag_field="schema", kw_only=True
):
    """Several nodes: the differences between them, and their reports.

    `faults` are what fails, is unknown or warns on any node, the worst and most frequent first.
    `silent` are the hosts that gave no report, `unreadable` the snapshots that hold no machine,
    each with the reason. An unreadable snapshot says nothing about its host. `no_earlier` are the
    hosts whose counters could not be compared with an earlier snapshot, with the reason.
    """

    differences: list[Difference]
    nodes: list[CheckReport]
    faults: list[Fault] = []
    silent: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    no_earlier: dict[str, str] = {}
    older: Annotated[
        list[str], Meta(description="snapshots left out, as their host has a newer one")
    ] = []
    copies: Annotated[
        list[str], Meta(description="snapshots left out, as another one says the same")
    ] = []


class LineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One command line, with masked secrets, and its findings.

    `where` is its place in a script, '' for one given as words.
    """

    where: str = ""
    argv: list[str]
    findings: list[ReportedFinding]


class CommandReport(
    Shown, msgspec.Struct, tag="busbw.check-command/1", tag_field="schema", kw_only=True
):
    """Command lines, and the facts of this machine that they were judged with.

    There are no facts if the lines do not start here.
    """

    lines: list[LineReport]
    facts: dict[str, str] = {}


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of the launch doctor."""

    name: str
    verdict: Verdict
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


class Diagnosis(Shown, msgspec.Struct, tag="busbw.launch/1", tag_field="schema", kw_only=True):
    """The stages that were run, and the command lines that work here, by launcher."""

    hosts: list[str]
    stages: list[Stage] = []
    commands: dict[str, str] = {}

    @property
    def failed(self) -> bool:
        return any(stage.verdict is Verdict.FAIL for stage in self.stages)


def grade(finding: ReportedFinding) -> str:
    """The word for the verdict of a finding; `no data` for an unknown that does not count."""
    return NO_DATA if finding.optional else finding.verdict.value


def overall(findings: Iterable[ReportedFinding], fail_on: Verdict = Verdict.FAIL) -> Verdict:
    """The verdict on a machine: the first of fail, unknown, warn and pass that a finding has.

    With `fail_on` WARN a warning makes it fail. A value that is not offered here does not count. If
    nothing was judged, the verdict is unknown.
    """
    verdicts = {finding.verdict for finding in findings if not finding.optional}
    if Verdict.FAIL in verdicts or fail_on in verdicts:
        return Verdict.FAIL
    for verdict in (Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS):
        if verdict in verdicts:
            return verdict
    return Verdict.UNKNOWN


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several machines; unknown if there is none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNKNOWN)


class LeftOut(NamedTuple):
    """The names of reports whose host has a newer one among them, or the same once more."""

    older: list[str]
    copies: list[str]

    def texts(self) -> list[str]:
        """Which were left out, and why."""
        reasons = {"older than": self.older, "the same as": self.copies}
        return [
            f"left out, as {reason} another of the host: {fold(names)}"
            for reason, names in reasons.items()
            if names
        ]


def left_out(reports: Mapping[str, CheckReport]) -> LeftOut:
    """Machines without a name of their own, and readings without a time, are all kept."""
    newest: dict[str, CheckReport] = {}
    for report in reports.values():
        if report.host not in newest or report.at > newest[report.host].at:
            newest[report.host] = report
    left = LeftOut([], [])
    for name, report in reports.items():
        last = newest[report.host]
        if not report.at or report.host in _NAMELESS or report is last:
            continue
        if report.at < last.at:
            left.older.append(name)
        elif report.findings == last.findings:
            left.copies.append(name)
    return left


def node_names(nodes: Sequence[CheckReport]) -> list[str]:
    """What to call each node: its host name, or its snapshot if two nodes have one host name."""
    count = Counter(report.host for report in nodes)
    return [
        report.host if count[report.host] == 1 else report.source or report.host for report in nodes
    ]
