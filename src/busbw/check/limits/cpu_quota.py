"""The CPU quota of the control group."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.limits.processes import unknown_group
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.sizes import counted
from busbw.host.cgroup import OWN, directories, quotas

ROW = CheckRow(
    id="BW137",
    name="cpu-quota",
    layer=Layer.LIMITS,
    title="CPU quota of the control group",
    right="no quota, or one that has never stopped the group",
    why="A group that has used its quota stands still until the next period, by default of 100 ms, and all other ranks wait.",
    fix="remove the quota in {path} (in Kubernetes resources.limits.cpu, in Docker --cpus, in systemd CPUQuota=); bind CPUs in place of it",
    stays="with the job or container that sets it",
    reads=(OWN, "/sys/fs/cgroup/**/cpu.max", "cpu.stat"),
    sources=("Linux, Documentation/scheduler/sched-bwc.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each quota on the way to the root group."""
    if not directories(machine, "cpu"):
        yield unknown_group(machine, "cpu")
        return
    found = quotas(machine)
    for one in found:
        evidence = Evidence(one.path, f"{one.cpus:g} CPUs, stopped in {one.throttled} periods", "no quota, or never stopped")
        if one.throttled:
            message = f"the quota of {one.cpus:g} CPUs has stopped the group in {counted(one.throttled, 'period')}"
            yield warned("", message, evidence, fix=ROW.fix.format(path=one.path))
        else:
            yield passed("", f"the quota of {one.cpus:g} CPUs has not stopped the group so far", evidence)
    if not found:
        yield passed("", "no CPU quota", Evidence(OWN, machine.text(OWN) or ""))


CHECK = Check(ROW, look)
