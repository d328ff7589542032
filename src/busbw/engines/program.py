"""Programs: launches, marks and times that an engine runs without Python between them.

busbw-native runs them for the nccl engine: Python takes part of a microsecond for each call, and a
small operation takes 10.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Mark:
    """A part of a program: as Engine.mark."""

    index: int


class ProgramMarker(Enum):
    """Parts of a program: the end of an iteration, and a place where the time is noted."""

    END = "end"
    CLOCK = "clock"


Part = Callable[[], object] | Mark | ProgramMarker


@dataclass(frozen=True, slots=True)
class ProgramTimes:
    """What a program did, in seconds of Engine.clock.

    `start_s` is before its first part, `enqueued_s` after its last iteration, and `end_s` when all
    streams were idle if it waited for them. `clocks_s` are the noted times.
    """

    start_s: float
    enqueued_s: float
    end_s: float
    clocks_s: Sequence[float]


class Program(Protocol):
    """Parts that run without Python between them."""

    def iterations_left(self) -> int:
        """The number of iterations that the run has left; another thread may ask."""

    def run(self, iterations: int) -> ProgramTimes:
        """Run the iterations in turn, from the first again after the last.

        Errors are those of the launches.
        """


class Loop(Protocol):
    """Makes programs."""

    def program(self, parts: Sequence[Part], *, wait: bool) -> Program:
        """A program of these parts, the last of which is ProgramMarker.END.

        With `wait` a run ends when all streams are idle.
        """
