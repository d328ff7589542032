"""What checks found: on a machine, on several, in command lines, and in the stages of a launch."""

import msgspec

from busbw.core.finding import Verdict


class Evidence(msgspec.Struct, frozen=True):
    """One value that was read: where, what, and what was expected there ('' if nothing in
    particular).
    """

    where: str
    seen: str
    expected: str = ""


class Found(msgspec.Struct, frozen=True):
    """What a check found on one part of a machine: `subject`, like mlx5_0; '' is the machine.

    `fix` is empty where none is needed.

    `optional` is for an unknown: this kernel, driver, container or user is not given the value. It
    says nothing about the part. Of the findings of a check with one verdict, the one with the
    largest `weight` is the worst, and stands first.
    """

    verdict: Verdict
    subject: str
    message: str
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    optional: bool = False
    weight: float = 0.0


class Checked(msgspec.Struct, frozen=True, kw_only=True):
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


class Muted(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that an expectations file accepts until a day (ISO date).

    It does not count. `where` is the place of the mute.
    """

    finding: Checked
    reason: str
    until: str
    where: str


class CheckReport(msgspec.Struct, tag="busbw.check/1", tag_field="schema", kw_only=True):
    """All findings on one machine, in the order of the checks.

    `source` is a snapshot's name, '' for the live machine.
    """

    host: str
    source: str = ""
    at: str = ""  # ISO time of the reading
    busbw: str = ""
    verdict: Verdict = Verdict.UNKNOWN  # of the whole machine, see busbw.check.overall
    findings: list[Checked] = []
    muted: list[Muted] = []


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that is not the same on all nodes: the value of most of them ('' if no value is on
    more than half), and the others' hosts.
    """

    fact: str
    usual: str
    usual_hosts: int
    odd: dict[str, list[str]]


class Node(msgspec.Struct, kw_only=True):
    """What one node says about itself."""

    report: CheckReport
    facts: dict[str, str]


class ClusterReport(msgspec.Struct, tag="busbw.check-cluster/1", tag_field="schema", kw_only=True):
    """Several nodes: what differs between them, their reports, and the hosts that gave none, with
    the reason.

    `unreadable` are snapshots that hold no machine, which say nothing about the host.
    """

    differences: list[Difference]
    nodes: list[CheckReport]
    silent: dict[str, str] = {}
    unreadable: dict[str, str] = {}


class LineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One command line, with masked secrets, and what was found in it.

    `where` is its place in a script, '' for one given as words.
    """

    where: str = ""
    argv: list[str]
    findings: list[Checked]


class CommandReport(msgspec.Struct, tag="busbw.check-command/1", tag_field="schema", kw_only=True):
    """Command lines, and the facts of this machine that they were judged with; none if they do
    not start here.
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


class Diagnosis(msgspec.Struct, tag="busbw.launch/1", tag_field="schema", kw_only=True):
    """The stages that were run, and command lines that work here by launcher."""

    hosts: list[str]
    stages: list[Stage] = []
    commands: dict[str, str] = {}

    @property
    def failed(self) -> bool:
        """Whether a stage failed."""
        return any(stage.verdict is Verdict.FAIL for stage in self.stages)
