"""The events that rank 0 reports while it measures.

An event is a JSON object on a line of its own.
"""

import os
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from busbw.core import json_codec, rank_messages
from busbw.core.ran import LoggedConnections
from busbw.core.result import Outcome, PairLink, Result, ResultRow
from busbw.measure.progress import Progress

R = TypeVar("R", bound=Outcome)


class Event(msgspec.Struct, tag_field="event"):
    """What rank 0 reports. Each kind of run may have events of its own (measure.job)."""

    def add_to(self, result: Outcome) -> bool:
        """Add what it reports to the result of the run; False if it has nothing for it."""
        return False


class Started(Event, Generic[R], tag="started"):
    """All ranks have joined and allocated their buffers; `result` has everything but
    measurements.
    """

    result: R


class RowDone(Event, tag="row"):
    """Row `number` of its repeat is measured; `out_of_bounds` is the number of checks so far that
    found wrong data.

    A row that is not `final` will be visited again, and comes again, also before it is final.
    """

    row: ResultRow
    out_of_bounds: int = 0
    number: int = -1  # the next
    final: bool = True

    def add_to(self, result: Outcome) -> bool:
        """Add the row, or replace that of an earlier visit."""
        assert isinstance(result, Result)
        rows_before = sum(row.repeat != self.row.repeat for row in result.rows)
        number = len(result.rows) if self.number < 0 else rows_before + self.number
        result.rows[number : number + 1] = [self.row]
        result.out_of_bounds = self.out_of_bounds
        return True


class Note(Event, tag="note"):
    """A message; `answer` if nccl-tests prints it on stdout."""

    text: str
    answer: bool = False


class Ended(Event, tag="ended"):
    """The run is complete. `ran` is how NCCL connected the ranks; `ran_unknown` is why not all rows
    of a sweep state what it ran.
    """

    end: str
    memory: dict[str, int]
    links: list[PairLink] = []
    ran: LoggedConnections | None = None
    ran_unknown: str = ""

    def add_to(self, result: Outcome) -> bool:
        """Mark the result as complete."""
        result.end, result.memory, result.complete = self.end, self.memory, True
        result.ran = self.ran
        if isinstance(result, Result):
            result.links, result.ran_unknown = self.links, self.ran_unknown
        return True


Emit = Callable[[Event], None]


class EnterPhase(Protocol):
    """A function to call before each phase."""

    def __call__(self, phase: str, detail: str, progress: Progress | None = None, /) -> None:
        """`detail` is, for example, the size; `progress` counts the steps of the phase."""


def encode(event: Event) -> bytes:
    """One line with its newline."""
    return json_codec.encode(event) + b"\n"


def now() -> str:
    """The local time in the format of nccl-tests' JSON."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def write_report(report: rank_messages.Report) -> None:
    """Write a report to stderr, bypassing Python's buffer, whose lock may be held."""
    os.write(2, f"{rank_messages.encode(report)}\n".encode())
