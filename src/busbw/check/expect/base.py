"""An expectation: a check that compares a machine with what a file says it should have.

The mutes of an expectations file that have ended.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeVar

from busbw.check.base import CheckOf, Judge, failed, passed, skipped, unknown, warned
from busbw.check.expect.spec import Expectations, Mute
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.finding import CheckRow, Layer

Value = TypeVar("Value")


@dataclass(frozen=True)
class Asked:
    """A machine, what it should have, and where the file says so."""

    machine: Machine
    node: Expectations
    where: Callable[..., str]  # the place of a key: "node.toml line 3"
    today: date

    def expected(self, text: str, *key: str | int) -> str:
        """An expected value with its place in the file."""
        return f"{text} ({self.where(*key)})"


Expectation = CheckOf[Asked]
REGISTERED: list[Expectation] = []  # by the decorator, as modules are imported


def expectation(row: CheckRow) -> Callable[[Judge[Asked]], Expectation]:
    """Makes a function that compares a machine with a file the expectation of `row`."""

    def register(judge: Judge[Asked]) -> Expectation:
        made = Expectation(row, judge)
        REGISTERED.append(made)
        return made

    return register


def shown(value: Any) -> str:
    """A value as a message has it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def gib(size: float) -> str:
    """Bytes as GiB."""
    return f"{size / 2**30:.1f} GiB"


def hidden(machine: Machine) -> str:
    """What may hide devices of the host; '' if nothing does."""
    return "this container" if machine.container else ""


@dataclass
class Comparison:
    """The values of one part, `subject`, against what is expected of it.

    `fix` is the remedy if one is wrong.
    """

    asked: Asked
    subject: str
    fix: str
    good: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    met: list[Evidence] = field(default_factory=list)
    unmet: list[Evidence] = field(default_factory=list)

    def same(
        self,
        what: str,
        seen: Value | None,
        expected: Value | None,
        key: tuple[str | int, ...],
        where: str,
    ) -> None:
        """`seen` must be `expected`.

        Nothing is compared if that is None; a value that could not be read is unknown.
        """
        self._compare(what, seen, expected, key, where, right=seen == expected)

    def least(
        self,
        what: str,
        seen: float | None,
        expected: float | None,
        key: tuple[str | int, ...],
        where: str,
        *,
        unit: Callable[[float], str] = shown,
        tolerance: float = 0.0,
    ) -> None:
        """`seen` must be at least `expected`, less the share `tolerance`."""
        right = seen is not None and expected is not None and seen >= expected * (1 - tolerance)
        self._compare(what, seen, expected, key, where, right=right, unit=unit)

    def _compare(
        self,
        what: str,
        seen: Any,
        expected: Any,
        key: tuple[str | int, ...],
        where: str,
        *,
        right: bool,
        unit: Callable[..., str] = shown,
    ) -> None:
        if expected is None:
            return
        if seen is None:
            self.missing(what, f"{where} does not show it")
            return
        (self.good if right else self.wrong).append(
            f"{what} {unit(seen)}" if right else f"{what} is {unit(seen)}, not {unit(expected)}"
        )
        self.note(
            Evidence(where, unit(seen), self.asked.expected(unit(expected), *key)), right=right
        )

    def note(self, evidence: Evidence, *, right: bool) -> None:
        """A value that was compared."""
        (self.met if right else self.unmet).append(evidence)

    def missing(self, what: str, reason: str) -> None:
        """A value that is expected and could not be read."""
        self.unread.append(f"{what} cannot be read: {reason}")

    def found(self, nothing: str = "") -> list[Found]:
        """The finding: none if nothing was expected and there is no text for that."""
        if self.wrong:
            return [failed(self.subject, "; ".join(self.wrong), *self.unmet, fix=self.fix)]
        if self.unread:
            return [unknown(self.subject, "; ".join(self.unread), *self.met)]
        if self.good or nothing:
            return [passed(self.subject, ", ".join(self.good) or nothing, *self.met)]
        return []


HOSTNAME = "/proc/sys/kernel/hostname"

MUTE_ENDED = CheckRow(
    id="BW299",
    name="mute-ended",
    layer=Layer.EXPECTED,
    title="mutes of an expectations file",
    right="no [[mute]] for this host has an end, until, before today",
    why=(
        "A finding that was accepted for some days is forgotten. From the end of its mute on it"
        " counts again."
    ),
    fix="fix what {check} finds and delete the mute, or give it a later until",
    stays="yes, in the file",
    reads=("the file given with --expect",),
    sources=(),
)


@expectation(MUTE_ENDED)
def expect_no_ended_mute(asked: Asked) -> Iterator[Found]:
    """Each mute that is for this host."""
    host, none = asked.machine.text(HOSTNAME), True
    for number, mute in enumerate(asked.node.mute):
        if mute.host in (None, host):
            none = False
            yield _judge_mute(asked, number, mute)
    if none:
        yield skipped("the file mutes nothing on this host")


def _judge_mute(asked: Asked, number: int, mute: Mute) -> Found:
    what = f"{mute.check} {mute.subject or ''}".strip()
    if asked.today <= mute.until:
        return skipped(f"{what} is muted until {mute.until}: {mute.reason}", what)
    where = asked.where("mute", number, "until")
    evidence = Evidence(where, f"until {mute.until}", f"{asked.today} or later")
    return warned(
        what,
        f"the mute of {what} ended on {mute.until}: {mute.reason}",
        evidence,
        fix=MUTE_ENDED.fix.format(check=mute.check),
    )
