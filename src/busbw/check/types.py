"""What checks found: on a machine, on several, in command lines, and in the stages of a launch.

The verdict on a whole machine, from the findings of its checks, and its exit code.

The launch doctor's output: a line for each stage, and the command lines that work.
"""

from collections.abc import Iterable

import msgspec

from busbw.core.errors import Exit
from busbw.core.finding import Verdict
from busbw.ui.number_formats import wrapped


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
    verdict: Verdict = Verdict.UNKNOWN  # of the whole machine, see busbw.check.types
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


SEVERITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS, Verdict.SKIP)
NO_DATA = "no data"
GRADES = ("fail", "unknown", "warn", NO_DATA, "pass", "skip")  # of findings, the worst first
AS_ROOT = "sudo busbw check"  # the fix of a finding that only root can make


def grade(one: Checked) -> str:
    """The word for its verdict; an unknown that does not count is `no data`."""
    return NO_DATA if one.optional else one.verdict.value


def overall(findings: Iterable[Checked], fail_on: Verdict = Verdict.FAIL) -> Verdict:
    """Fail, unknown, warn or pass, the first that a finding has.

    With `fail_on` WARN a warning makes it fail.

    A value that is not offered here does not count. If nothing else was judged, the verdict is
    unknown.
    """
    seen = {one.verdict for one in findings if not one.optional}
    if Verdict.FAIL in seen or fail_on in seen:
        return Verdict.FAIL
    return next(
        (verdict for verdict in (Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS) if verdict in seen),
        Verdict.UNKNOWN,
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several machines; unknown if there is none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNKNOWN)


def exit_code(verdict: Verdict) -> Exit:
    """1 for fail, 3 for unknown, else 0."""
    return {Verdict.FAIL: Exit.BAD, Verdict.UNKNOWN: Exit.UNKNOWN}.get(verdict, Exit.OK)


def stage(one: Stage, width: int | None = None) -> str:
    """One stage; with evidence and fix unless it passed."""
    lines = [f"{one.verdict.name:7} {one.name}: {one.message}"]
    if one.verdict in (Verdict.FAIL, Verdict.WARN):
        lines += [f"        seen: {text}" for text in one.evidence if text]
        lines += [f"        fix: {one.fix}"] if one.fix else []
    return wrapped("".join(f"{line}\n" for line in lines), width)


def commands(found: Diagnosis) -> str:
    """The command lines, unbroken, so that they can be copied."""
    return "".join(f"\n{name}:\n  {line}\n" for name, line in found.commands.items())


def text(found: Diagnosis, width: int | None = None) -> str:
    """All stages and command lines."""
    return "".join(stage(one, width) for one in found.stages) + commands(found)
