"""Two kinds of operations at the same time on one rank: on two streams of its GPU, or in two
threads of its process.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from busbw.engines.base import Engine, Launch

JOIN_LIMIT_S = 600.0  # for a thread; the watchdog ends a job that makes no progress long before


class Together(Protocol):
    """Runs operations of both sides, each side in its order."""

    def warm(self, first: Sequence[Launch], second: Sequence[Launch]) -> None:
        """Run each once, where it will be timed: what it allocates must not wait."""

    def take(self, first: Sequence[Launch], second: Sequence[Launch]) -> tuple[float, float]:
        """Seconds from the common start to the end of each side; 0 for a side without any."""


class OnStreams:
    """On a GPU: the first side on the engine's stream, the second on another. All is enqueued
    before the first operation runs.
    """

    def __init__(self, engine: Engine, limit_s: float) -> None:
        self._engine, self._limit_s = engine, limit_s
        self._fence = engine.fence()
        self._other = torch.cuda.Stream()
        self._begin, self._end, self._other_end = (
            torch.cuda.Event(enable_timing=True) for _ in range(3)
        )

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
        main: Any = torch.cuda.current_stream()
        with self._engine.held():
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
        self._engine.synchronize(self._limit_s)
        ends = (self._end, first), (self._other_end, second)
        first_s, second_s = (
            1e-3 * self._begin.elapsed_time(end) if launches else 0.0 for end, launches in ends
        )
        return first_s, second_s


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
