"""The cgroup's limit of processes."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.limits.processes import LEAST_THREADS, threads_needed, unknown_group
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.cgroup import OWN, directories, limits

ROW = CheckRow(
    id="BW138",
    name="cgroup-pids",
    layer=Layer.LIMITS,
    title="cgroup limit of processes and threads",
    right=f"room for 2 x GPUs x CPUs, and for {LEAST_THREADS} or more",
    why="At the limit no thread starts: Resource temporarily unavailable. systemd sets such a limit by default, Kubernetes may.",
    fix="raise {path} (in Docker --pids-limit=-1, in Kubernetes podPidsLimit, in systemd TasksMax=infinity)",
    stays="permanent in the service or container spec",
    reads=(OWN, "/sys/fs/cgroup/**/pids.max", "pids.current"),
    sources=("Linux, Documentation/admin-guide/cgroup-v2.rst: pids",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each limit up to the root cgroup."""
    if not directories(machine, "pids"):
        yield unknown_group(machine, "pids")
        return
    found, least = limits(machine, "pids"), threads_needed(machine)
    small = [one for one in found if one.limit - (one.used or 0) < least]
    for one in small:
        message = f"the cgroup may have {one.limit} processes and threads, and has {one.used or 'some'}; the ranks may need {least}"
        yield warned("", message, Evidence(one.path, str(one.limit), f"room for {least}"), fix=filled(ROW.fix, path=one.path))
    if found and not small:
        yield passed("", "the cgroup has room for processes and threads", *(Evidence(one.path, str(one.limit)) for one in found))
    elif not found:
        yield passed("", "the number of processes is not limited", Evidence(OWN, machine.text(OWN) or ""))


CHECK = Check(ROW, look)
