"""The cgroup's memory limit."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.limits.processes import unknown_group
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.cgroup import OWN, directories, killed, limits

SHARE = 0.9  # of the limit: above it the kernel soon reclaims pages

ROW = CheckRow(
    id="BW135",
    name="cgroup-memory",
    layer=Layer.LIMITS,
    title="cgroup memory limit",
    right=f"less than {SHARE:.0%} used, and no process was killed for memory",
    why="At the limit the kernel kills a process of the cgroup, and the other ranks wait for it. Files in /dev/shm count too.",
    fix="raise {path} (in Slurm --mem, in Kubernetes resources.limits.memory, in systemd MemoryMax=)",
    stays="permanent in the job or container spec",
    reads=(OWN, "/sys/fs/cgroup/**/memory.max", "memory.current", "memory.stat", "memory.events"),
    sources=("Linux, Documentation/admin-guide/cgroup-v2.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Kills in this cgroup, and each limit up to the root cgroup."""
    if not directories(machine, "memory"):
        yield unknown_group(machine, "memory")
        return
    found = limits(machine, "memory")
    dead = killed(machine)
    if dead and dead[1]:
        fix = filled(ROW.fix, path=found[0].path) if found else "use less memory, or a machine with more"
        yield warned(
            "",
            f"the kernel has killed {counted(dead[1], 'process', 'es')} of this cgroup for memory",
            Evidence(dead[0], f"oom_kill {dead[1]}", "0"),
            fix=fix,
        )
    full = [(one, used) for one in found if (used := one.used) is not None and used > SHARE * one.limit]
    for one, used in full:
        evidence = Evidence(one.path, f"{used} of {one.limit} bytes used", f"less than {SHARE:.0%}")
        yield warned("", f"{used / one.limit:.0%} of the memory limit is used", evidence, fix=filled(ROW.fix, path=one.path))
    if full or (dead and dead[1]):
        return
    if found:
        least = min(found, key=lambda one: one.limit)
        yield passed("", f"memory is limited to {least.limit >> 20} MiB", Evidence(least.path, str(least.limit)))
    else:
        yield passed("", "memory is not limited", Evidence(OWN, machine.text(OWN) or ""))


CHECK = Check(ROW, look)
