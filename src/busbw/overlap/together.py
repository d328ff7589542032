"""Two kinds of operations at the same time on one rank: on two streams of its GPU, or in two
threads of its process.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch

from busbw.engines.base import Engine, Launch
from busbw.launch.control import Control

LAUNCH_S, MARGIN = 10e-6, 1.5  # to enqueue an operation, and how many times as long the GPU idles
CYCLES_PER_S = 2e9  # of a GPU's clock, at most
TRIES = 4
JOIN_LIMIT_S = 600.0  # for a thread; the watchdog ends a job that makes no progress long before


class Span(NamedTuple):
    """When a side ran, in seconds from the common start: from the end of its first operation, by
    which both sides run, to that of its last.
    """

    start_s: float = 0.0
    end_s: float = 0.0

    @property
    def took_s(self) -> float:
        return self.end_s - self.start_s


class Together(Protocol):
    """Runs operations of both sides, each side in its order. `take` is collective."""

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        """Run each once, where it will be timed: what it allocates must not wait."""

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[Span, Span]:
        """When each side ran; zeros for a side without operations."""


class OnStreams:
    """On a GPU: the first side on the engine's stream, the second on another.

    All is enqueued while the GPU idles for a while, as its queue is too short to be held for so
    many operations. If a GPU began before the last one was enqueued, all ranks run again, and idle
    for longer.
    """

    def __init__(self, engine: Engine, control: Control, limit_s: float) -> None:
        self._engine, self._control, self._limit_s = engine, control, limit_s
        self._fence = engine.fence()
        self._other = torch.cuda.Stream()
        self._begin, *marks = (torch.cuda.Event(enable_timing=True) for _ in range(5))
        self._marks = tuple(marks[:2]), tuple(marks[2:])  # start and end of each side
        self._launch_s = LAUNCH_S  # of an operation, as long as any took so far

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        for launch in first:
            launch()
        with torch.cuda.stream(self._other):
            for launch in second:
                launch()
        torch.cuda.synchronize()

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[Span, Span]:
        for _ in range(TRIES):
            began_s = time.perf_counter()
            is_idle = self._enqueue(first, second)
            took_s = time.perf_counter() - began_s
            self._engine.synchronize(self._limit_s)
            self._launch_s = max(self._launch_s, took_s / (len(first) + len(second)))
            if self._control.reduce_all([float(is_idle)], "min")[0]:
                break
        first_span, second_span = map(self._span, (first, second), self._marks)
        return first_span, second_span

    def _span(self, launches: Sequence[Launch], marks: tuple[Any, ...]) -> Span:
        if not launches:
            return Span()
        return Span(*(1e-3 * self._begin.elapsed_time(mark) for mark in marks))

    def _enqueue(self, first: Sequence[Launch], second: Sequence[Launch]) -> bool:
        """Enqueue both sides in turn; whether the GPU had not begun by then."""
        main: Any = torch.cuda.current_stream()
        idle_s = MARGIN * self._launch_s * (len(first) + len(second))
        torch.cuda._sleep(round(idle_s * CYCLES_PER_S))
        self._fence()  # all ranks start together
        self._begin.record(main)
        self._other.wait_event(self._begin)
        sides = [(main, first, self._marks[0]), (self._other, second, self._marks[1])]
        for number in range(max(len(first), len(second))):
            for stream, launches, (start, _) in sides:
                with torch.cuda.stream(stream):
                    for launch in launches[number : number + 1]:
                        launch()
                    if number == 0:
                        start.record()
        for stream, _, (_, end) in sides:
            end.record(stream)
        main.wait_event(self._marks[1][1])
        return not self._begin.query()


class InThreads:
    """On a CPU: the second side in a thread of its own. Both wait for each other to start."""

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        self.take(first, second)

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[Span, Span]:
        """See Together. An error of either side is raised when both have ended."""
        both = threading.Barrier(2)
        other = _Worker(second, both)
        other.start()
        main = _Worker(first, both)
        main.run()
        other.join(JOIN_LIMIT_S)
        for worker in (main, other):
            if worker.error is not None:
                raise worker.error
        return main.span, other.span


class _Worker(threading.Thread):
    def __init__(self, launches: Sequence[Launch], both: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self._launches, self._both = launches, both
        self.span = Span()
        self.error: Exception | None = None

    def run(self) -> None:
        self._both.wait(JOIN_LIMIT_S)
        began_s, ends_s = time.perf_counter(), list[float]()
        try:
            for launch in self._launches:
                launch()
                ends_s.append(time.perf_counter() - began_s)
        except Exception as error:  # noqa: BLE001 - it is raised by the thread that waits
            self.error = error
        if ends_s:
            self.span = Span(ends_s[0], ends_s[-1])
