"""Processes that wait in the kernel and cannot be killed."""

import json
import re
import time
from pathlib import Path

from busbw.host.process import name, read_proc, stat_fields

UNINTERRUPTIBLE = "D"
KTHREADD_PID = 2  # kthreadd, the parent of all kernel threads
MAX_READS, READ_INTERVAL_S = 12, 0.25
Wait = tuple[int, str]  # pid, and how many times it has waited


def stuck_processes() -> str:
    """JSON list of [pid, name, kernel function] of processes that stay in one wait in state D.

    They are looked at MAX_READS times, over 3 s, or until no such process is left. A process that
    reads many files is in state D most times too, but its count of waits grows. The function is ''
    if the kernel does not show it.
    """
    waits = _waiting([int(entry.name) for entry in Path("/proc").glob("[0-9]*")])
    for _ in range(MAX_READS - 1):
        if not waits:
            break
        time.sleep(READ_INTERVAL_S)
        waits = still_waiting(waits, _waiting([pid for pid, _ in waits]))
    return json.dumps([[pid, name(pid), _function(pid)] for pid, _ in waits])


def still_waiting(before: list[Wait], now: list[Wait]) -> list[Wait]:
    """Those of `now` that are in the same wait as before."""
    return [wait for wait in now if wait in before]


def _function(pid: int) -> str:
    text = read_proc(pid, "wchan")
    return "" if text == "0" else text


def _waiting(pids: list[int]) -> list[Wait]:
    states = [(pid, stat_fields(read_proc(pid, "stat"))) for pid in pids]
    stuck = [
        pid
        for pid, fields in states
        if fields and fields[0] == UNINTERRUPTIBLE and fields[1] != KTHREADD_PID
    ]
    return [(pid, waits_so_far(read_proc(pid, "status"))) for pid in stuck]


def waits_so_far(status: str) -> str:
    """The count of voluntary context switches in the text of /proc/PID/status.

    It grows with each wait. '' if the text has no such count.
    """
    match = re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", status, re.MULTILINE)
    return match[1] if match else ""
