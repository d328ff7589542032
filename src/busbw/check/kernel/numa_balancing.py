"""Automatic NUMA balancing."""

from collections.abc import Iterator

from busbw.check.base import Check, skipped
from busbw.check.kernel.sysctl import STAYS, off
from busbw.check.machine import Machine
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.cpu import count_list

PATH, NODES = "/proc/sys/kernel/numa_balancing", "/sys/devices/system/node/online"

ROW = CheckRow(
    id="BW115",
    name="kernel-numa-balancing",
    layer=Layer.KERNEL,
    title="automatic NUMA balancing",
    right="0 on machines with more than one NUMA node",
    why="The kernel unmaps pages to see who uses them, and migrates them. Each such fault delays a rank, and the others wait for it.",
    fix="sysctl -w kernel.numa_balancing=0",
    stays=STAYS,
    reads=(PATH, NODES),
    sources=("Linux, Documentation/admin-guide/sysctl/kernel.rst: numa_balancing",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The setting, where there is more than one node."""
    if count_list(machine.text(NODES) or "") == 1:
        yield skipped("the machine has one NUMA node")
        return
    yield from off(machine, PATH, "automatic NUMA balancing", ROW.fix)


CHECK = Check(ROW, look)
