"""What a check is: a row of texts, and a pure function of a machine or command line."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from busbw.check.machine import Machine
from busbw.core.checking import Checked, CheckRow, Evidence, Found
from busbw.core.finding import Verdict
from busbw.host.source import Reading

Seen = TypeVar("Seen")


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
                id=row.id, name=row.name, layer=row.layer.value, verdict=one.verdict, subject=one.subject, message=one.message,
                evidence=one.evidence, fix=one.fix, stays=row.stays if one.verdict in (Verdict.WARN, Verdict.FAIL) else "",
            )
            for one in sorted(self.look(seen), key=_weight, reverse=True)
        ]  # fmt: skip


def _weight(found: Found) -> float:
    return found.weight


Check = CheckOf[Machine]


def passed(subject: str, message: str, *evidence: Evidence) -> Found:
    """It is right."""
    return Found(Verdict.PASS, subject, message, evidence)


def warned(subject: str, message: str, *evidence: Evidence, fix: str = "", weight: float = 0.0) -> Found:
    """It costs speed or may fail later."""
    return Found(Verdict.WARN, subject, message, evidence, fix, weight)


def failed(subject: str, message: str, *evidence: Evidence, fix: str = "", weight: float = 0.0) -> Found:
    """It is broken, or stops a job."""
    return Found(Verdict.FAIL, subject, message, evidence, fix, weight)


def skipped(message: str, subject: str = "") -> Found:
    """The question does not apply to this machine."""
    return Found(Verdict.SKIP, subject, message)


def unknown(subject: str, message: str, *evidence: Evidence, fix: str = "") -> Found:
    """It could not be read, so it does not pass."""
    return Found(Verdict.UNKNOWN, subject, message, evidence, fix)


def unread(subject: str, reading: Reading, what: str, fix: str = "") -> Found:
    """Unknown, with the reason why a file or call could not be read."""
    return unknown(subject, f"{what} cannot be read: {reading.reason}", fix=fix)


def no_environment() -> Found:
    """Unknown, as the environment is not in the snapshot."""
    return unknown("", "the snapshot has no environment", fix="busbw check, in the shell or job script that starts the ranks")


def judged(
    *, right: bool, subject: str, good: str, bad: str, evidence: tuple[Evidence, ...], fix: str, fails: bool = False, weight: float = 0.0
) -> Found:
    """Pass, or warn or fail with the fix."""
    if right:
        return passed(subject, good, *evidence)
    return (failed if fails else warned)(subject, bad, *evidence, fix=fix, weight=weight)
