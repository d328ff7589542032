"""The cgroup's CPU quota."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.limits.processes import unknown_group
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.cgroup import OWN, directories, quotas

ROW = CheckRow(
    id="BW137",
    name="cpu-quota",
    layer=Layer.LIMITS,
    title="cgroup CPU quota",
    right="no quota, or one that never throttled the cgroup",
    why="A cgroup that has used its quota stops until the next period (100 ms by default), and all other ranks wait.",
    fix="remove the quota in {path} (in Kubernetes resources.limits.cpu, in Docker --cpus, in systemd CPUQuota=); bind CPUs instead",
    stays="permanent in the job or container spec",
    reads=(OWN, "/sys/fs/cgroup/**/cpu.max", "cpu.stat"),
    sources=("Linux, Documentation/scheduler/sched-bwc.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each quota up to the root cgroup."""
    if not directories(machine, "cpu"):
        yield unknown_group(machine, "cpu")
        return
    found = quotas(machine)
    for one in found:
        evidence = Evidence(one.path, f"{one.cpus:g} CPUs, throttled in {one.throttled} periods", "no quota, or never throttled")
        if one.throttled:
            message = f"the quota of {one.cpus:g} CPUs throttled the cgroup in {counted(one.throttled, 'period')}"
            yield warned("", message, evidence, fix=filled(ROW.fix, path=one.path))
        else:
            yield passed("", f"the quota of {one.cpus:g} CPUs has not throttled the cgroup so far", evidence)
    if not found:
        yield passed("", "no CPU quota", Evidence(OWN, machine.text(OWN) or ""))


CHECK = Check(ROW, look)
