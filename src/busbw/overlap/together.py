"""Two kinds of operations at the same time on one rank: on two streams of its GPU, or in two
threads of its process.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from busbw.engines.base import Engine, Launch
from busbw.launch.control import Control

LAUNCH_S, MARGIN = 10e-6, 1.5  # to enqueue an operation, and how many times as long the GPU idles
CYCLES_PER_S = 2e9  # of a GPU's clock, at most
TRIES = 4
JOIN_LIMIT_S = 600.0  # for a thread; the watchdog ends a job that makes no progress long before


class Together(Protocol):
    """Runs operations of both sides, each side in its order. `take` is collective."""

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        """Run each once, where it will be timed: what it allocates must not wait."""

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[float, float]:
        """Seconds from the common start to the end of each side; 0 for a side without any."""


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
        self._begin, self._end, self._other_end = (
            torch.cuda.Event(enable_timing=True) for _ in range(3)
        )
        self._launch_s = LAUNCH_S  # of an operation, as long as any took so far

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        """See Together."""
        for launch in first:
            launch()
        with torch.cuda.stream(self._other):
            for launch in second:
                launch()
        torch.cuda.synchronize()

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[float, float]:
        """See Together."""
        for _ in range(TRIES):
            began_s = time.perf_counter()
            is_idle = self._enqueue(first, second)
            took_s = time.perf_counter() - began_s
            self._engine.synchronize(self._limit_s)
            self._launch_s = max(self._launch_s, took_s / (len(first) + len(second)))
            if self._control.reduce_all([float(is_idle)], "min")[0]:
                break
        ends = (self._end, first), (self._other_end, second)
        first_s, second_s = (
            1e-3 * self._begin.elapsed_time(end) if launches else 0.0 for end, launches in ends
        )
        return first_s, second_s

    def _enqueue(self, first: Sequence[Launch], second: Sequence[Launch]) -> bool:
        """Enqueue both sides in turn; whether the GPU had not begun by then."""
        main: Any = torch.cuda.current_stream()
        idle_s = MARGIN * self._launch_s * (len(first) + len(second))
        torch.cuda._sleep(round(idle_s * CYCLES_PER_S))
        self._fence()  # all ranks start together
        self._begin.record(main)
        self._other.wait_event(self._begin)
        for number in range(max(len(first), len(second))):
            for launch in first[number : number + 1]:
                launch()
            with torch.cuda.stream(self._other):
                for launch in second[number : number + 1]:
                    launch()
        self._end.record(main)
        self._other_end.record(self._other)
        main.wait_event(self._other_end)
        return not self._begin.query()


class InThreads:
    """On a CPU: the second side in a thread of its own. Both wait for each other to start."""

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        """See Together."""
        self.take(first, second)

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[float, float]:
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
        return main.took_s, other.took_s


class _Worker(threading.Thread):
    def __init__(self, launches: Sequence[Launch], both: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self._launches, self._both = launches, both
        self.took_s = 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        self._both.wait(JOIN_LIMIT_S)
        began_s = time.perf_counter()
        try:
            for launch in self._launches:
                launch()
        except Exception as error:  # noqa: BLE001 - it is raised by the thread that waits
            self.error = error
        self.took_s = time.perf_counter() - began_s if self._launches else 0.0
