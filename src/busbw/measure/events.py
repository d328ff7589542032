"""The events that rank 0 reports while it measures, one JSON object per line, and the report of a rank that fails."""

import os
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from busbw.core import reports, wire
from busbw.core.planning import Plan
from busbw.core.replaying import Replay
from busbw.core.result import AnyResult, Link, Row
from busbw.core.training import TrainRun
from busbw.core.tuning import Choice, Trial
from busbw.measure.progress import Progress

FAILED_PREFIX = "busbw-failed: "


class Started(msgspec.Struct, tag="started", tag_field="event"):
    """All ranks have joined and allocated their buffers; `result` has everything but measurements."""

    result: AnyResult


class RowDone(msgspec.Struct, tag="row", tag_field="event"):
    """Row `number` of its repeat is measured; `out_of_bounds` is the number of checks so far that found wrong data.

    A row that is not `final` will be visited again, and comes again then.
    """

    row: Row
    out_of_bounds: int = 0
    number: int = -1  # the next
    final: bool = True


class Iteration(msgspec.Struct, tag="iteration", tag_field="event"):
    """One iteration of a training is measured; `rate` is in samples per second and rank."""

    method: str
    round: int
    number: int
    rate: float


class Trained(msgspec.Struct, tag="trained", tag_field="event"):
    """One method of a training is measured, for one round."""

    run: TrainRun


class Surveyed(msgspec.Struct, tag="surveyed", tag_field="event"):
    """A plan with all that is measured so far."""

    plan: Plan


class Played(msgspec.Struct, tag="played", tag_field="event"):
    """A replay is measured."""

    replay: Replay


class Trying(msgspec.Struct, tag="trying", tag_field="event"):
    """The next operations of a tuning use this choice (None: NCCL's own), so that a failure has a name."""

    size_bytes: int
    choice: Choice | None


class Tried(msgspec.Struct, tag="tried", tag_field="event"):
    """The search at one size has ended."""

    trial: Trial


class Note(msgspec.Struct, tag="note", tag_field="event"):
    """A message; `answer` if nccl-tests prints it on stdout."""

    text: str
    answer: bool = False


class Ended(msgspec.Struct, tag="ended", tag_field="event"):
    """The sweep is complete."""

    end: str
    memory: dict[str, int]
    links: list[Link] = []


Event: TypeAlias = Started | RowDone | Iteration | Trained | Surveyed | Played | Trying | Tried | Note | Ended
Emit = Callable[[Event], None]


class EnterPhase(Protocol):
    """A function to call before each phase."""

    def __call__(self, phase: str, detail: str, progress: Progress | None = None, /) -> None:
        """`detail` is, for example, the size; `progress` that through the phase."""


class Failed(msgspec.Struct):
    """Why a rank ended: message and hint of a BusbwError, exit code, rank and host."""

    message: str
    hint: str
    exit: int
    rank: int
    host: str
    kind: str = ""  # name of the error's class
    options: list[str] = []  # ids as in BusbwError


_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event, strict=False)


def decode(line: bytes) -> Event:
    """The event of one line; msgspec.DecodeError if it is none."""
    return _decoder.decode(line)


def encode(event: Event) -> bytes:
    """One line with its newline."""
    return wire.encode(event) + b"\n"


def now() -> str:
    """The local time in the format of nccl-tests' JSON."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def write_failure(failed: Failed) -> None:
    """Write a failure to stderr for the launcher, in one write so that lines of several ranks do not mix."""
    sys.stderr.write(f"{FAILED_PREFIX}{msgspec.json.encode(failed).decode()}\n")
    sys.stderr.flush()


def write_report(report: reports.Report) -> None:
    """Write a report to stderr, bypassing Python's buffer, whose lock may be held."""
    os.write(2, f"{reports.encode(report)}\n".encode())


def failure(line: str) -> Failed | None:
    """The failure in a line of stderr, if any."""
    at = line.find(FAILED_PREFIX)
    if at < 0:
        return None
    try:
        return msgspec.json.decode(line[at + len(FAILED_PREFIX) :], type=Failed)
    except msgspec.DecodeError:
        return None
