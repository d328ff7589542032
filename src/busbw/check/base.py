"""What a check is: a row of texts, and a pure function of a machine or command line."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from busbw.check.machine import Machine
from busbw.check.overall import AS_ROOT
from busbw.check.types import Checked, Evidence, Found
from busbw.core.check_row import CheckRow
from busbw.core.finding import Verdict
from busbw.core.masking import masked
from busbw.host.source import Reading

Seen = TypeVar("Seen")

# Words in the reason of a reading without data, which has the text of an errno in lower case. Any other is a part that failed to answer.
DENIED = ("permission denied", "operation not permitted", "needs root")
ABSENT = (
    "no such file", "not a directory", "invalid argument", "no data available", "inappropriate ioctl", "not supported", "not implemented",
    "not in the recording", "the recording has no", "not installed", "no such interface", "has no ", "does not have", "shows no ",
)  # fmt: skip


@dataclass(frozen=True)  # Python 3.11 has no generic dataclass that is frozen and has slots
class CheckOf(Generic[Seen]):
    """One check. `look` yields at least one finding, one for each part: skip if there is no such part."""

    row: CheckRow
    look: Callable[[Seen], Iterable[Found]]

    def run(self, seen: Seen) -> list[Checked]:
        """The findings with the check's id."""
        row = self.row
        return [
            Checked(
                id=row.id, name=row.name, layer=row.layer.value, verdict=one.verdict, subject=one.subject, message=masked(one.message),
                evidence=tuple(map(_without_secrets, one.evidence)), fix=one.fix,
                stays=row.stays if one.verdict in (Verdict.WARN, Verdict.FAIL) else "",
                optional=one.optional,
            )
            for one in sorted(self.look(seen), key=_weight, reverse=True)
        ]  # fmt: skip


def _without_secrets(evidence: Evidence) -> Evidence:
    return Evidence(evidence.where, masked(evidence.seen), evidence.expected)


def _weight(found: Found) -> float:
    return found.weight


Check = CheckOf[Machine]


def passed(subject: str, message: str, *evidence: Evidence) -> Found:
    """It is right."""
    return Found(Verdict.PASS, subject, message, evidence)


def warned(subject: str, message: str, *evidence: Evidence, fix: str = "", weight: float = 0.0) -> Found:
    """It costs speed or may fail later."""
    return Found(Verdict.WARN, subject, message, evidence, fix, weight=weight)


def failed(subject: str, message: str, *evidence: Evidence, fix: str = "", weight: float = 0.0) -> Found:
    """It is broken, or stops a job."""
    return Found(Verdict.FAIL, subject, message, evidence, fix, weight=weight)


def skipped(message: str, subject: str = "") -> Found:
    """The question does not apply to this machine."""
    return Found(Verdict.SKIP, subject, message)


def unknown(subject: str, message: str, *evidence: Evidence, fix: str = "") -> Found:
    """The machine has the part, and it could not be judged: the machine is not healthy as far as is known. See `not_offered`."""
    return Found(Verdict.UNKNOWN, subject, message, evidence, fix)


def not_offered(subject: str, message: str, *evidence: Evidence, fix: str = "") -> Found:
    """This kernel, driver, virtual machine, container, user or snapshot does not give the value, which says nothing about the part.

    It does not pass, but does not make the whole machine unknown.
    """
    return Found(Verdict.UNKNOWN, subject, message, evidence, fix, optional=True)


def unread(subject: str, reading: Reading, what: str, fix: str = "") -> Found:
    """What could not be read, with the reason; see `unanswered`."""
    reason = reading.reason or "it has no such value"
    return (unknown if broken(reading) else not_offered)(subject, f"{what} cannot be read: {reason}", fix=fix or _as_root(reason))


def unanswered(subject: str, message: str, reason: str, *evidence: Evidence, fix: str = "") -> Found:
    """Unknown if `reason` is that of a part which is there and failed, as with an I/O error; else not offered."""
    make = unknown if broken(Reading(None, reason)) else not_offered
    return make(subject, message, *evidence, fix=fix or _as_root(reason))


def broken(reading: Reading) -> bool:
    """Whether what was read is there and failed to answer, as with an I/O error."""
    return reading.text is None and not any(word in reading.reason for word in (*DENIED, *ABSENT))


def _as_root(reason: str) -> str:
    return AS_ROOT if any(word in reason for word in DENIED) else ""


def no_environment() -> Found:
    """Not offered, as the environment is not in the snapshot."""
    return not_offered("", "the snapshot has no environment", fix="busbw check, in the shell or job script that starts the ranks")


def judged(
    *, right: bool, subject: str, good: str, bad: str, evidence: tuple[Evidence, ...], fix: str, fails: bool = False, weight: float = 0.0
) -> Found:
    """Pass, or warn or fail with the fix."""
    if right:
        return passed(subject, good, *evidence)
    return (failed if fails else warned)(subject, bad, *evidence, fix=fix, weight=weight)
