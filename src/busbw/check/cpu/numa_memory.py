"""The memory of each NUMA node."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, passed, unknown, unread, warned
from busbw.check.machine import Machine
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.sizes import counted
from busbw.host.settings import cpu_set

NODES = "/sys/devices/system/node"
SHARE = 0.75  # of the largest node: a missing module of eight leaves 0.88, two leave 0.75

ROW = CheckRow(
    id="BW150",
    name="mem-numa-nodes",
    layer=Layer.CPU,
    title="memory of the NUMA nodes",
    right="each node with CPUs has memory, and about as much as the others",
    why="Ranks near a node without memory allocate on another: their buffers are behind the link between the sockets.",
    fix="dmidecode -t memory, to see which module near node {node} is missing or off; reseat or replace it",
    stays="a matter of hardware or BIOS setup",
    reads=(f"{NODES}/online", f"{NODES}/node*/cpulist", f"{NODES}/node*/meminfo"),
    sources=("Linux, Documentation/ABI/stable/sysfs-devices-node",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Nodes with CPUs; a GPU may show its memory as a node without."""
    online = machine.read(f"{NODES}/online")
    if not online.text:
        yield unread("", online, "the list of NUMA nodes")
        return
    nodes = [node for node in sorted(cpu_set(online.text)) if machine.text(f"{NODES}/node{node}/cpulist")]
    sizes = {node: _bytes(machine.text(f"{NODES}/node{node}/meminfo") or "") for node in nodes}
    if not sizes or None in sizes.values():
        yield unknown("", f"{NODES}/node*/meminfo cannot be read")
        return
    most = max(size or 0 for size in sizes.values())
    small = {node: size or 0 for node, size in sizes.items() if (size or 0) < SHARE * most or not size}
    for node, size in small.items():
        evidence = Evidence(f"{NODES}/node{node}/meminfo", f"MemTotal {size >> 20} MiB", f"about {most >> 20} MiB")
        yield warned(f"node {node}", f"it has {size >> 20} MiB of memory, another {most >> 20}", evidence, fix=ROW.fix.format(node=node))
    if not small:
        evidence = Evidence(f"{NODES}/online", online.text)
        yield passed("", f"{counted(len(sizes), 'NUMA node')}, the largest with {most >> 30} GiB", evidence)


def _bytes(text: str) -> int | None:
    match = re.search(r"MemTotal:\s+(\d+) kB", text)
    return int(match.group(1)) * 1024 if match else None


CHECK = Check(ROW, look)
