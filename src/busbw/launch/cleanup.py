"""Removes the local processes of an aborted job, and shared memory that a killed Open MPI or NCCL leaves behind."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARKER = "BUSBW_JOB"  # in the environment of every process of a job, because mpirun's local ranks leave its process group
KILL_LIMIT_S = 5.0
EXEC_READS, EXEC_S = 50, 0.001  # of an environment that is empty while its process executes a new program
SHARED = Path("/dev/shm")
# Open MPI 5, Open MPI 4, NCCL. Other segments may belong to other jobs, such as those of CUDA MPS.
_SEGMENTS = tuple(f"{SHARED}/{name}" for name in ("sm_segment.", "vader_segment.", "nccl-"))
_DELETED = " (deleted)"


class Cleanup:
    """Cleans up the job whose processes have MARKER=`marker` in their environment."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._segments: set[str] = set()

    def record_shared_memory(self) -> None:
        """Record the shared memory of running processes. After they exit, its owner is unknown."""
        for pid in self.pids():
            self._segments.update(_segments(pid))

    def kill_remaining(self) -> None:
        """Kill remaining processes and remove the shared memory of all processes of the job."""
        deadline = time.monotonic() + KILL_LIMIT_S
        while (left := self.pids()) and time.monotonic() < deadline:
            for pid in left:
                self._segments.update(_segments(pid))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for segment in self._segments:
            with contextlib.suppress(OSError):
                Path(segment).unlink()

    def pids(self) -> list[int]:
        """Running processes of the job."""
        wanted = f"{MARKER}={self._marker}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in _environment(entry.parent).split(b"\0"):
                    found.append(int(entry.parent.name))
            except OSError:  # exited meanwhile, or another user's
                continue
        return found


def _environment(process: Path) -> bytes:
    """The environment of a process, given as /proc/PID. OSError if it has exited, or is another user's."""
    for _ in range(EXEC_READS):
        found = (process / "environ").read_bytes()
        if found or not _has_program(process):
            break
        time.sleep(EXEC_S)
    return found


def _has_program(process: Path) -> bool:
    """Whether it is neither a kernel thread nor a zombie."""
    try:
        return bool((process / "exe").readlink().name)
    except OSError:
        return False


def _segments(pid: int) -> Iterator[str]:
    """Shared memory files that a process has mapped."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in maps.splitlines():
        path = line[line.find("/") :] if "/" in line else ""
        if path.startswith(_SEGMENTS) and not path.endswith(_DELETED):
            yield path
