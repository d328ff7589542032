"""The memory of each NUMA node."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, passed, unread, warned
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.settings import cpu_set

NODES = "/sys/devices/system/node"
SHARE = 0.75  # of the largest node: with one of eight modules missing 0.88 is left, with two 0.75

ROW = CheckRow(
    id="BW150",
    name="mem-numa-nodes",
    layer=Layer.CPU,
    title="memory of each NUMA node",
    right="each node with CPUs has memory, and about as much as the others",
    why="Ranks near a node without memory allocate on another node, and their buffers are across the link between the sockets.",
    fix="dmidecode -t memory shows which module near node {node} is missing or off; drain the host, power it off, and reseat or replace it",
    stays="permanent: hardware or a BIOS setting",
    reads=(f"{NODES}/online", f"{NODES}/node*/cpulist", f"{NODES}/node*/meminfo"),
    sources=("Linux, Documentation/ABI/stable/sysfs-devices-node",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Nodes with CPUs; a GPU's memory may be a node without CPUs."""
    online = machine.read(f"{NODES}/online")
    if not online.text:
        yield unread("", online, "the list of NUMA nodes")
        return
    nodes = [node for node in sorted(cpu_set(online.text)) if machine.text(f"{NODES}/node{node}/cpulist")]
    sizes = {node: _bytes(machine.text(f"{NODES}/node{node}/meminfo") or "") for node in nodes}
    known = {node: size for node, size in sizes.items() if size is not None}
    if not known or len(known) < len(sizes):
        first = next((node for node in sizes if node not in known), 0)
        yield unread(f"node {first}", machine.read(f"{NODES}/node{first}/meminfo"), "its memory")
        return
    most = max(known.values())
    small = {node: size for node, size in known.items() if size < SHARE * most or not size}
    for node, size in small.items():
        evidence = Evidence(f"{NODES}/node{node}/meminfo", f"MemTotal {size >> 20} MiB", f"about {most >> 20} MiB")
        yield warned(
            f"node {node}", f"it has {size >> 20} MiB of memory, the largest node {most >> 20}", evidence, fix=filled(ROW.fix, node=node)
        )
    if not small:
        evidence = Evidence(f"{NODES}/online", online.text)
        yield passed("", f"{counted(len(sizes), 'NUMA node')}, the largest with {most >> 30} GiB", evidence)


def _bytes(text: str) -> int | None:
    match = re.search(r"MemTotal:\s+(\d+) kB", text)
    return int(match.group(1)) * 1024 if match else None


CHECK = Check(ROW, look)
