"""Processes that wait in the kernel and cannot be killed."""

import json
import time
from pathlib import Path

from busbw.host.process import name, stat_fields

UNINTERRUPTIBLE = "D"
KERNEL = 2  # kthreadd, the parent of all kernel threads
LOOKS, APART_S = 4, 0.25  # a process that reads a file waits for milliseconds


def stuck_processes() -> str:
    """JSON list of [pid, name] of the processes that were in state D in each of several looks, in all one second long at most."""
    pids = _waiting([int(entry.name) for entry in Path("/proc").glob("[0-9]*")])
    for _ in range(LOOKS - 1):
        if not pids:
            break
        time.sleep(APART_S)
        pids = _waiting(pids)
    return json.dumps([[pid, name(pid)] for pid in pids])


def _waiting(pids: list[int]) -> list[int]:
    return [pid for pid in pids if (fields := _fields(pid)) and fields[0] == UNINTERRUPTIBLE and fields[1] != KERNEL]


def _fields(pid: int) -> tuple[str, int] | None:
    try:
        return stat_fields(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
