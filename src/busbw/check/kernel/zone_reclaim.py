"""Reclaim of memory of the own NUMA node."""

from collections.abc import Iterator

from busbw.check.base import Check
from busbw.check.kernel.sysctl import STAYS, off
from busbw.check.machine import Machine
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

PATH = "/proc/sys/vm/zone_reclaim_mode"

ROW = CheckRow(
    id="BW116",
    name="kernel-zone-reclaim",
    layer=Layer.KERNEL,
    title="memory reclaim before other NUMA nodes are used",
    right="0",
    why="Otherwise an allocation first frees pages of its own node, such as cached training data, while other nodes have free memory.",
    fix="sysctl -w vm.zone_reclaim_mode=0",
    stays=STAYS,
    reads=(PATH,),
    sources=("Linux, Documentation/admin-guide/sysctl/vm.rst: zone_reclaim_mode",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The setting."""
    yield from off(machine, PATH, "zone reclaim", ROW.fix)


CHECK = Check(ROW, look)
