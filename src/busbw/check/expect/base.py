"""An expectation: a check that compares a machine with what a file says it should have.

A Comparison collects the values of one part. The expectation here finds mutes that have ended.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeVar

from busbw.check.base import CheckOf, Judge, failed, passed, skipped, unknown, warned
from busbw.check.expect.spec import ALL_CHECKS, Expectations, Mute
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer

Value = TypeVar("Value")
HOSTNAME = "/proc/sys/kernel/hostname"


@dataclass(frozen=True)
class Target:
    """A machine, and what it should have.

    `where` gives the place of a key in the file, like "node.toml line 3". `today` is the day on
    which mutes are judged.
    """

    machine: Machine
    node: Expectations
    where: Callable[..., str]
    today: date

    def expected(self, text: str, *key: str | int) -> str:
        return f"{text} ({self.where(*key)})"


Expectation = CheckOf[Target]
REGISTERED: list[Expectation] = []  # by the decorator, as modules are imported


def expectation(row: CheckRow) -> Callable[[Judge[Target]], Expectation]:
    """Makes a function that compares a machine with a file the expectation of `row`.

    The registry then has it.
    """

    def register(judge: Judge[Target]) -> Expectation:
        registered = Expectation(row, judge)
        REGISTERED.append(registered)
        return registered

    return register


def shown_value(value: Any) -> str:
    """A value as it is written in a message."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def gib(size: float) -> str:
    """Bytes as text in GiB."""
    return f"{size / 2**30:.1f} GiB"


def hidden(machine: Machine) -> str:
    """What may hide devices of the host; '' if nothing does."""
    return "this container" if machine.container else ""


@dataclass
class PartComparison:
    """The values of one part compared with what is expected of it."""

    target: Target
    subject: str  # the part
    fix: str  # the remedy if a value is wrong
    good: list[str] = field(default_factory=list)  # texts on values as expected
    wrong: list[str] = field(default_factory=list)  # texts on other values
    unread: list[str] = field(default_factory=list)  # texts on values that could not be read
    met: list[Evidence] = field(default_factory=list)  # evidence for `good`
    unmet: list[Evidence] = field(default_factory=list)  # evidence for `wrong`

    def same(
        self,
        quantity: str,
        value: Value | None,
        expected: Value | None,
        key: tuple[str | int, ...],
        where: str,
    ) -> None:
        """`value` must be `expected`.

        Nothing is compared if `expected` is None. A `value` of None could not be read. `key` is the
        place in the file, `where` the place on the machine.
        """
        self._compare(quantity, value, expected, key, where, right=value == expected)

    def least(
        self,
        quantity: str,
        value: float | None,
        expected: float | None,
        key: tuple[str | int, ...],
        where: str,
        *,
        unit: Callable[[float], str] = shown_value,
        tolerance: float = 0.0,
    ) -> None:
        """`value` must be at least `expected` times (1 - `tolerance`); else as `same`.

        `unit` writes a value with its unit.
        """
        right = value is not None and expected is not None and value >= expected * (1 - tolerance)
        self._compare(quantity, value, expected, key, where, right=right, unit=unit)

    def _compare(
        self,
        quantity: str,
        value: Any,
        expected: Any,
        key: tuple[str | int, ...],
        where: str,
        *,
        right: bool,
        unit: Callable[..., str] = shown_value,
    ) -> None:
        if expected is None:
            return
        if value is None:
            self.missing(quantity, f"{where} does not show it")
            return
        if right:
            self.good.append(f"{quantity} {unit(value)}")
        else:
            self.wrong.append(f"{quantity} is {unit(value)}, not {unit(expected)}")
        evidence = Evidence(where, unit(value), self.target.expected(unit(expected), *key))
        self.note(evidence, right=right)

    def note(self, evidence: Evidence, *, right: bool) -> None:
        """Add the evidence of a value that was compared."""
        (self.met if right else self.unmet).append(evidence)

    def missing(self, quantity: str, reason: str) -> None:
        """Add a value that is expected and could not be read."""
        self.unread.append(f"{quantity} cannot be read: {reason}")

    def findings(self, nothing: str = "") -> list[Finding]:
        """The finding. Without an expected value it is `nothing`, or none if that is ''."""
        if self.wrong:
            return [failed(self.subject, "; ".join(self.wrong), *self.unmet, fix=self.fix)]
        if self.unread:
            return [unknown(self.subject, "; ".join(self.unread), *self.met)]
        if self.good or nothing:
            return [passed(self.subject, ", ".join(self.good) or nothing, *self.met)]
        return []


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
def expect_no_ended_mute(target: Target) -> Iterator[Finding]:
    """A finding for each mute that is for this host."""
    host, none = target.machine.text(HOSTNAME), True
    for number, mute in enumerate(target.node.mute):
        if mute.host in (None, host):
            none = False
            yield _judge_mute(target, number, mute)
    if none:
        yield skipped("the file mutes nothing on this host")


def _judge_mute(target: Target, number: int, mute: Mute) -> Finding:
    check = "all checks" if mute.check == ALL_CHECKS else mute.check
    finding = f"{check} {mute.subject or ''}".strip()
    if target.today <= mute.until:
        return skipped(f"{finding} is muted until {mute.until}: {mute.reason}", finding)
    where = target.where("mute", number, "until")
    evidence = Evidence(where, f"until {mute.until}", f"{target.today} or later")
    return warned(
        finding,
        f"the mute of {finding} ended on {mute.until}: {mute.reason}",
        evidence,
        fix=MUTE_ENDED.fix.format(check=check),
    )
