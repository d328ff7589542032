"""Writes a Chrome trace of rank 0 (chrome://tracing, Perfetto).

As in Horovod, it has one process for each name of an operation.

Format: Trace Event Format, "JSON array" with complete (X), instant (i) and metadata (M) events;
times in microseconds. The format lets the closing bracket be absent. Each event is written by one
system call and no comma follows it, so the file is valid after a kill too.
"""

import errno
import json
import os
import sys
import threading
import time
from typing import Any, BinaryIO

from busbw.core.written_file import target_of

NEGOTIATE, CYCLE = "NEGOTIATE_{}", "CYCLE_START"


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Timeline:
    """Writes events between `start` and `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._processes: dict[str, int] = {}
        self._began_s = 0.0
        self._mark_cycles = False

    def start(self, path: str, mark_cycles: bool = False) -> None:
        """Open a new file and close the current one.

        Raises:
            OSError: the file cannot be written.
        """
        self.stop()
        with self._lock:
            # Path.open has no opener.
            target_of(path)  # no link of a stranger leads to it
            self._file = open(path, "wb", buffering=0, opener=_owner_only)  # noqa: SIM115
            self._processes, self._began_s, self._mark_cycles = {}, time.monotonic(), mark_cycles
            now_us = time.time_ns() // 1000
            event = self._named(
                "process_name", 0, name="rank 0", start_time_since_epoch_in_micros=now_us
            )
            self._write(event, before=b"[\n")
            self._write(self._named("process_sort_index", 0, sort_index=0))

    def stop(self) -> None:
        with self._lock:
            if self._file is not None:
                self._write(b"\n]\n", before=b"")
            if self._file is not None:
                self._file.close()
                self._file = None

    def span(self, name: str, activity: str, begin_s: float, end_s: float, **args: Any) -> None:
        """Write an event from `begin_s` to `end_s` (time.monotonic) in the process of `name`."""
        with self._lock:
            if self._file is None or end_s < self._began_s:
                return
            begin_s = max(begin_s, self._began_s)
            when = {"ts": self._us(begin_s), "dur": round((end_s - begin_s) * 1e6, 1)}
            event = {"name": activity, "ph": "X", "pid": self._process(name), "tid": 0}
            self._write(_json({**event, **when, "args": args}))

    def cycle(self) -> None:
        """Mark the start of an exchange."""
        with self._lock:
            if self._file is not None and self._mark_cycles:
                at_us = self._us(time.monotonic())
                event = {"name": CYCLE, "ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": at_us}
                self._write(_json(event))

    def _process(self, name: str) -> int:
        if name not in self._processes:
            number = self._processes[name] = len(self._processes) + 1
            self._write(self._named("process_name", number, name=name))
            self._write(self._named("process_sort_index", number, sort_index=number))
        return self._processes[name]

    def _us(self, at_s: float) -> float:
        return round((at_s - self._began_s) * 1e6, 1)

    @staticmethod
    def _named(kind: str, process: int, **args: Any) -> bytes:
        return _json({"name": kind, "ph": "M", "pid": process, "tid": 0, "args": args})

    def _write(self, event: bytes, before: bytes = b",\n") -> None:
        """Write an event. If that fails, the trace ends and the training continues."""
        if self._file is None:
            return
        try:
            written = self._file.write(before + event)
            if written < len(before + event):
                self._file.truncate(self._file.tell() - written)  # keep whole events only
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            sys.stderr.write(
                f"busbw horovod: the timeline {self._file.name} ends: {error.strerror}\n"
            )
            self._file.close()
            self._file = None


def _json(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()
