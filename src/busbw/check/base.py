"""A check: a row of texts, and a pure function of a machine or command line.

Also the findings that all checks make: passed, warned, failed, skipped, unknown, not offered.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from busbw.check.machine import Machine
from busbw.check.types import AS_ROOT, Evidence, Finding, ReportedFinding
from busbw.core.finding import CheckRow, Verdict
from busbw.core.masking import masked
from busbw.host.source import Reading

Subject = TypeVar("Subject")
Judge = Callable[[Subject], Iterable[Finding]]
Need = Callable[[Subject], Finding | None]

# Words in the reason why a reading has no data, often the text of an errno in lower case. With any
# other reason, the part failed to answer.
DENIED = ("permission denied", "operation not permitted", "needs root")
ABSENT = (
    "no such file", "not a directory", "invalid argument", "no data available",
    "inappropriate ioctl", "not supported", "not implemented", "not in the recording",
    "the recording has no", "not installed", "no such interface", "has no ", "does not have",
    "shows no ",
)  # fmt: skip


@dataclass(frozen=True)  # Python 3.11 has no generic dataclass that is frozen and has slots
class CheckOf(Generic[Subject]):
    """One check. `judge` yields a finding for each part, or a skip if there is no part.

    `needs` gives the finding for a subject that lacks what the check needs. Reports have the check
    after that with the id `after`; by default checks are in the order of their ids.
    """

    row: CheckRow
    judge: Judge[Subject]
    needs: Need[Subject] | None = None
    after: str = ""

    def missing(self, subject: Subject) -> Finding | None:
        """The finding where the check lacks what it needs; None if it can be made."""
        return self.needs(subject) if self.needs else None

    def run(self, subject: Subject) -> list[ReportedFinding]:
        """The findings with the check's id, the one with the largest weight first."""
        missing = self.missing(subject)
        findings = [missing] if missing else self.judge(subject)
        heaviest_first = sorted(findings, key=lambda finding: finding.weight, reverse=True)
        return [checked(self.row, finding) for finding in heaviest_first]


def checked(row: CheckRow, finding: Finding) -> ReportedFinding:
    """A finding with the row of its check, without secrets, and what was read once."""
    evidence = dict.fromkeys(
        Evidence(entry.where, masked(entry.seen), entry.expected) for entry in finding.evidence
    )
    bad = finding.verdict in (Verdict.WARN, Verdict.FAIL)
    return ReportedFinding(
        id=row.id,
        name=row.name,
        layer=row.layer.value,
        verdict=finding.verdict,
        subject=finding.subject,
        message=masked(finding.message),
        evidence=tuple(evidence),
        fix=finding.fix,
        stays=row.stays if bad else "",
        optional=finding.optional,
        weight=finding.weight,
    )


Check = CheckOf[Machine]
REGISTERED: list[Check] = []  # by the decorators, as their modules are imported


def check(
    row: CheckRow, *, needs: Need[Machine] | None = None, after: CheckRow | None = None
) -> Callable[[Judge[Machine]], Check]:
    """Makes a function of a machine the check of `row`, which the registry then has.

    `needs` is what must be known of the machine. Reports have the check after that of `after`.
    """

    def register(judge: Judge[Machine]) -> Check:
        registered = Check(row, judge, needs, after.id if after else "")
        REGISTERED.append(registered)
        return registered

    return register


def _without_environment(machine: Machine) -> Finding | None:
    if machine.environment is not None:
        return None
    fix = "busbw check, in the shell or job script that starts the ranks"
    return not_offered("", "the snapshot has no environment", fix=fix)


# The machine must have the variables of the shell that starts the ranks.
ENVIRONMENT: Need[Machine] = _without_environment


def passed(subject: str, message: str, *evidence: Evidence) -> Finding:
    """The part is right."""
    return Finding(Verdict.PASS, subject, message, evidence)


def warned(
    subject: str, message: str, *evidence: Evidence, fix: str = "", weight: float = 0.0
) -> Finding:
    """The fault costs speed, or the part may fail later."""
    return Finding(Verdict.WARN, subject, message, evidence, fix, weight=weight)


def failed(
    subject: str, message: str, *evidence: Evidence, fix: str = "", weight: float = 0.0
) -> Finding:
    """The part is broken, or the fault stops a job."""
    return Finding(Verdict.FAIL, subject, message, evidence, fix, weight=weight)


def skipped(message: str, subject: str = "") -> Finding:
    """The check does not apply to this machine."""
    return Finding(Verdict.SKIP, subject, message)


def unknown(subject: str, message: str, *evidence: Evidence, fix: str = "") -> Finding:
    """The machine has the part, and it could not be judged.

    So it is not known that the machine is healthy. See `not_offered`.
    """
    return Finding(Verdict.UNKNOWN, subject, message, evidence, fix)


def not_offered(subject: str, message: str, *evidence: Evidence, fix: str = "") -> Finding:
    """This kernel, driver, virtual machine, container, user or snapshot does not give the value.

    That says nothing about the part: it does not pass, but does not make the whole machine unknown.
    """
    return Finding(Verdict.UNKNOWN, subject, message, evidence, fix, optional=True)


def unread(subject: str, reading: Reading, noun: str, fix: str = "") -> Finding:
    """The finding on a value that could not be read, named by `noun`; see `unanswered`."""
    reason = reading.reason or "it has no such value"
    make = unknown if broken(reading) else not_offered
    return make(subject, f"{noun} cannot be read: {reason}", fix=fix or _as_root(reason))


def unanswered(
    subject: str, message: str, reason: str, *evidence: Evidence, fix: str = ""
) -> Finding:
    """Unknown if by `reason` the part is there and failed, as with an I/O error.

    Else not offered.
    """
    make = unknown if broken(Reading(None, reason)) else not_offered
    return make(subject, message, *evidence, fix=fix or _as_root(reason))


def broken(reading: Reading) -> bool:
    """Whether the part that was read is there and failed to answer, as with an I/O error."""
    return reading.text is None and not any(word in reading.reason for word in (*DENIED, *ABSENT))


def _as_root(reason: str) -> str:
    return AS_ROOT if any(word in reason for word in DENIED) else ""


def judged(
    *,
    right: bool,
    subject: str,
    good: str,
    bad: str,
    evidence: tuple[Evidence, ...],
    fix: str,
    fails: bool = False,
    weight: float = 0.0,
) -> Finding:
    """Passed if `right`; else warned, or failed with `fails`, with the fix."""
    if right:
        return passed(subject, good, *evidence)
    return (failed if fails else warned)(subject, bad, *evidence, fix=fix, weight=weight)
