"""Cleans up after a job that was cut short: its processes here, and shared memory that a killed Open MPI or NCCL does not remove."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARKER = "BUSBW_JOB"  # in the environment of every process of a job: mpirun's local ranks leave its process group
KILL_LIMIT_S = 5.0
SHARED = Path("/dev/shm")
# Open MPI 5, Open MPI 4, NCCL. Other memory may be another job's too, as that of CUDA's MPS is.
_SEGMENTS = tuple(f"{SHARED}/{name}" for name in ("sm_segment.", "vader_segment.", "nccl-"))
_DELETED = " (deleted)"


class Cleanup:
    """Of the job with this marker."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._segments: set[str] = set()

    def note(self) -> None:
        """Remember the shared memory of the processes that there are: once they have ended nobody can tell whose it was."""
        for pid in self._pids():
            self._segments.update(_segments(pid))

    def sweep(self) -> None:
        """Kill the processes that are left, and remove the shared memory of all of them."""
        deadline = time.monotonic() + KILL_LIMIT_S
        while (left := self._pids()) and time.monotonic() < deadline:
            for pid in left:
                self._segments.update(_segments(pid))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for segment in self._segments:
            with contextlib.suppress(OSError):
                Path(segment).unlink()

    def _pids(self) -> list[int]:
        wanted = f"{MARKER}={self._marker}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in entry.read_bytes().split(b"\0"):
                    found.append(int(entry.parent.name))
            except OSError:  # ended meanwhile, or another user's
                continue
        return found


def _segments(pid: int) -> Iterator[str]:
    """The files of shared memory that a process has mapped."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in maps.splitlines():
        path = line[line.find("/") :] if "/" in line else ""
        if path.startswith(_SEGMENTS) and not path.endswith(_DELETED):
            yield path
