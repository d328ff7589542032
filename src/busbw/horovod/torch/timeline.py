"""Writes a Chrome trace of rank 0 (chrome://tracing, Perfetto), with one row per operation name.

Format: Trace Event Format, "JSON array" with complete (X), instant (i) and metadata (M) events; times in microseconds.
"""

import json
import threading
import time
from pathlib import Path
from typing import IO, Any

NEGOTIATE, CYCLE = "NEGOTIATE_{}", "CYCLE_START"


class Timeline:
    """Writes events between `start` and `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: IO[str] | None = None
        self._rows: dict[str, int] = {}
        self._began_s = 0.0
        self._mark_cycles = False

    def start(self, path: str, mark_cycles: bool = False) -> None:
        """Open a new file and close the current one.

        Raises:
            OSError: it cannot be written.
        """
        self.stop()
        with self._lock:
            self._file = Path(path).open("w")  # noqa: SIM115 - until stop
            self._file.write("[\n")
            self._rows, self._began_s, self._mark_cycles = {}, time.monotonic(), mark_cycles
            self._write({"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "rank 0"}})

    def stop(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.write("{}\n]\n")
                self._file.close()
                self._file = None

    def span(self, name: str, what: str, begin_s: float, end_s: float, **args: Any) -> None:
        """Write an event from `begin_s` to `end_s` (time.monotonic) in the row of `name`."""
        with self._lock:
            if self._file is None or end_s < self._began_s:
                return
            begin_s = max(begin_s, self._began_s)
            when = {"ts": self._us(begin_s), "dur": round((end_s - begin_s) * 1e6, 1)}
            self._write({"name": what, "ph": "X", "pid": 0, "tid": self._row(name), **when, "args": args})

    def cycle(self) -> None:
        """Mark the start of an exchange."""
        with self._lock:
            if self._file is not None and self._mark_cycles:
                self._write({"name": CYCLE, "ph": "i", "s": "p", "pid": 0, "tid": 0, "ts": self._us(time.monotonic())})

    def _row(self, name: str) -> int:
        if name not in self._rows:
            self._rows[name] = len(self._rows) + 1
            self._write({"name": "thread_name", "ph": "M", "pid": 0, "tid": self._rows[name], "args": {"name": name}})
        return self._rows[name]

    def _us(self, at_s: float) -> float:
        return round((at_s - self._began_s) * 1e6, 1)

    def _write(self, event: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(event) + ",\n")
