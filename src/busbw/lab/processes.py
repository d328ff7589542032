"""Processes of a lab: those in its network namespaces, however they came there."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from busbw.core.errors import NoMeasurement
from busbw.host.process import kill, start_time
from busbw.lab.types import ProcessMark
from busbw.launch.cleanup import Cleanup

KILL_LIMIT_S = 10.0
NAMESPACES = Path("/run/netns")  # where iproute2 and pyroute2 keep named ones


def mark(pid: int) -> ProcessMark:
    """Marks a process so that it is never mistaken for a later one with the same pid."""
    return ProcessMark(pid, start_time(pid))


def alive(process: ProcessMark) -> bool:
    """Whether this process still runs."""
    return start_time(process.pid) == process.start


def exists(namespace: str) -> bool:
    """Whether there is a named network namespace; a file without one is what a killed process or
    another mount namespace leaves.
    """
    try:
        return (NAMESPACES / namespace).stat().st_dev != NAMESPACES.stat().st_dev
    except OSError:
        return False


def enter_network(namespace: str) -> list[str]:
    """The words before a command that run it in a named network namespace.

    Its mounts are slaves: a namespace that is removed meanwhile must not stay mounted here.
    """
    network = f"--net={NAMESPACES / namespace}"
    return ["nsenter", network, "unshare", "--uts", "--mount", "--propagation", "slave"]


def inside(namespace: str) -> list[int]:
    """Processes in a named network namespace; none if there is no such namespace."""
    try:
        link = f"net:[{(NAMESPACES / namespace).stat().st_ino}]"
    except OSError:
        return []
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if str((entry / "ns/net").readlink()) == link:
                pids.append(int(entry.name))
    return pids


def mounting(name: str) -> list[int]:
    """Processes in whose mount namespace a file of this name is mounted, even if removed."""
    mounted: dict[Path, bool] = {}
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            namespace = (entry / "ns/mnt").readlink()
            if namespace not in mounted:
                mounted[namespace] = f"/{name}" in (entry / "mountinfo").read_text(errors="replace")
            if mounted[namespace]:
                pids.append(int(entry.name))
    return pids


def kill_all(find: Callable[[], list[int]]) -> None:
    """Kill the processes that `find` finds, also those that they start meanwhile, and remove what a
    killed Open MPI or NCCL leaves.

    NoMeasurement if some do not end.
    """
    deadline, files = time.monotonic() + KILL_LIMIT_S, Cleanup("")
    while left := find():
        if time.monotonic() > deadline:
            pids = ",".join(map(str, left))
            raise NoMeasurement(
                f"processes {pids} do not end {KILL_LIMIT_S:g} s after SIGKILL",
                f"ps -o pid,stat,wchan:20,args -p {pids}",
            )
        files.record(left)
        for pid in left:
            kill(pid)
        time.sleep(0.005)
    files.remove_files()
