"""When a process captured CUDA graphs, and when it replayed each: NCCL does not say.

A replay costs some 0.3 us more. The file has pairs of 64-bit numbers, 4 x the graph's number plus
what happened to it, and the moment in ns since 1970; of replays after the first MAX_TIMED, how
many there were in place of the moment.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import busbw_exit  # type: ignore[import-not-found]

MODULE = "torch.cuda.graphs"
BEGIN, END, REPLAY, MORE = range(4)
MAX_TIMED = 200_000  # replays with their moments
KEPT = 4096  # pairs that are not yet written, for a second at most
SECOND_NS = 1_000_000_000


class Graphs:
    """What happens to the graphs of this process."""

    def __init__(self, folder: str) -> None:
        self._folder, self._numbers = folder, 0
        self._unwritten: array[int] = array("q")
        self._left, self._more = MAX_TIMED, dict[int, int]()
        self._written_ns = 0
        self.watched: dict[str, Callable[[Any], None]] = {MODULE: self._watch}

    def _watch(self, module: Any) -> None:
        graph = module.CUDAGraph
        self._before(graph, "capture_begin", self._begun)
        self._before(graph, "capture_end", self._ended)
        self._before(graph, "replay", self._replayed)

    def _before(self, owner: Any, name: str, note: Callable[[Any], None]) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def call(graph: Any, *args: Any, **options: Any) -> Any:
            with contextlib.suppress(Exception):  # a program is never disturbed
                note(graph)
            return original(graph, *args, **options)

        setattr(owner, name, call)

    def _begun(self, graph: Any) -> None:
        if not self._numbers:
            busbw_exit.call_at_end(self.write)
        self._numbers += 1
        graph.busbw_number = self._numbers
        self._note(self._numbers, BEGIN, time.time_ns())

    def _ended(self, graph: Any) -> None:
        self._note(graph.busbw_number, END, time.time_ns())

    def _replayed(self, graph: Any) -> None:
        number = graph.busbw_number
        if self._left:
            self._left -= 1
            self._note(number, REPLAY, time.time_ns())
        else:
            self._more[number] = self._more.get(number, 0) + 1

    def _note(self, number: int, what: int, now_ns: int) -> None:
        self._unwritten.append(4 * number + what)
        self._unwritten.append(now_ns)
        if len(self._unwritten) >= 2 * KEPT or now_ns - self._written_ns > SECOND_NS:
            self._written_ns = now_ns
            self._append()

    def write(self) -> None:
        """At the end of the process: what is left, and the counts behind the first replays."""
        for number, count in self._more.items():
            self._unwritten.extend((4 * number + MORE, count))
        self._more = {}
        if self._unwritten:
            self._append()

    def _append(self) -> None:
        """To the file of this process, named as that of the profiler plugin."""
        name = f"{os.uname().nodename}-{os.getpid()}.graphs"
        data, self._unwritten = self._unwritten.tobytes(), array("q")
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            descriptor = os.open(Path(self._folder, name), flags, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(data)
