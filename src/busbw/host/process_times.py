"""What a process has used and waited for so far, from /proc, to be read often and subtracted.

The kernel counts for each thread how long it ran, and how long it was ready and had no CPU
(Documentation/scheduler/sched-stats.rst). A thread that a CPU quota stops is ready too.
"""

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from busbw.host.cgroup import Quota, quotas
from busbw.host.process import read_proc
from busbw.host.source import LiveMachine

ALLOWED_CPUS = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
MAJOR_FAULTS = 9  # of the fields of /proc/PID/stat after the name


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """At `at_s` of the monotonic clock; times are in seconds since the process began."""

    at_s: float
    ran_s: float  # by its main thread
    waited_s: dict[int, float]  # for a CPU, by thread
    state: str  # letter of proc(5) of its main thread
    major_faults: int  # pages that were read from a disk
    cpus: str  # on which it may run: 0-3,8
    quotas: list[Quota]  # of its control groups


def read(pid: int, at_s: float | None = None) -> ProcessTimes | None:
    """None without such a process, or if the kernel does not count (CONFIG_SCHED_INFO)."""
    waited_s, ran_s = {}, None
    with suppress(OSError):  # it ends
        for thread in Path(f"/proc/{pid}/task").iterdir():
            words = read_proc(pid, f"task/{thread.name}/schedstat").split()
            if len(words) == 3:
                waited_s[int(thread.name)] = int(words[1]) / 1e9
                ran_s = int(words[0]) / 1e9 if thread.name == str(pid) else ran_s
    fields = read_proc(pid, "stat").rpartition(")")[2].split()
    if ran_s is None or len(fields) <= MAJOR_FAULTS:
        return None
    return ProcessTimes(
        at_s=time.monotonic() if at_s is None else at_s,
        ran_s=ran_s,
        waited_s=waited_s,
        state=fields[0],
        major_faults=int(fields[MAJOR_FAULTS]),
        cpus=allowed_cpus(pid),
        quotas=quotas(LiveMachine(), str(pid)),
    )


def allowed_cpus(pid: int) -> str:
    """The CPUs on which the process may run, as `0-3,8`; '' if that is unknown."""
    found = ALLOWED_CPUS.search(read_proc(pid, "status"))
    return found[1] if found else ""


def waited_s(before: ProcessTimes, after: ProcessTimes) -> float:
    """How long the thread that waited most for a CPU did so in between."""
    return max(
        waited - before.waited_s.get(thread, 0.0) for thread, waited in after.waited_s.items()
    )


def throttled(before: ProcessTimes, after: ProcessTimes) -> Quota | None:
    """The quota that stopped the process most often in between; None if none did."""
    rises = {
        new.throttled - old.throttled: new
        for old, new in zip(before.quotas, after.quotas, strict=False)
    }
    most = max(rises, default=0)
    return rises[most] if most > 0 else None
