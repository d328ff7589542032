"""The NUMA nodes of GPUs and RDMA devices."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE, Part, gpus, nics, rdma_nics
from busbw.check.pcie.upstream import nearest
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.cpu import count_list

NODES = "/sys/devices/system/node/online"

MOVE = "drain the host and power it off; then move {nic} ({bdf}) to a slot of NUMA node {node}, or add one there"

ROW = CheckRow(
    id="BW044",
    name="pcie-numa",
    layer=Layer.PCIE,
    title="NUMA nodes of GPUs and network controllers",
    right="known, and each GPU is on the same node as its nearest RDMA device",
    why="Without NUMA nodes NCCL cannot bind its threads near the GPU. Between two nodes all data crosses the link between the sockets.",
    fix="drain the host; enable NUMA (ACPI SRAT) in the BIOS, or expose the nodes of the host to the virtual machine",
    stays="permanent: a BIOS or hypervisor setting",
    reads=("/sys/bus/pci/devices/*/numa_node", NODES),
    sources=("Linux, Documentation/ABI/testing/sysfs-bus-pci",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each device has a node; each GPU and its nearest RDMA device have the same."""
    cards, ports = gpus(machine), rdma_nics(machine)
    parts = cards + (ports if machine.hypervisor else nics(machine))  # a hypervisor's own network devices have no node
    nodes = machine.read(NODES)
    if not parts:
        yield skipped(NONE)
    elif nodes.text is None:
        yield unread("", nodes, "the list of NUMA nodes")
    elif count_list(nodes.text) == 1:
        yield skipped("the machine has one NUMA node")
    else:
        lost = [part for part in parts if not (machine.text(f"{part.path}/numa_node") or "").isdecimal()]
        yield from (_lost(machine, part) for part in lost)
        far = [_far(machine, gpu, nic) for gpu in cards if gpu not in lost and (nic := nearest(gpu, ports, machine)) and nic not in lost]
        apart = [found for found in far if found]
        yield from apart
        if not lost and not apart:
            yield passed(
                "",
                "all GPUs and network controllers have a NUMA node, and no GPU is on a different node than its nearest RDMA device",
                Evidence(NODES, nodes.text),
            )


def _lost(machine: Machine, part: Part) -> Found:
    path = f"{part.path}/numa_node"
    reading = machine.read(path)
    if reading.text is None:
        return unread(part.name, reading, "its NUMA node")
    return warned(part.name, "its NUMA node is unknown", Evidence(path, reading.text, "0 or more"), fix=ROW.fix)


def _far(machine: Machine, gpu: Part, nic: Part) -> Found | None:
    own, its = (machine.text(f"{part.path}/numa_node") or "" for part in (gpu, nic))
    if own == its:
        return None
    evidence = Evidence(f"{gpu.path}/numa_node", own, its), Evidence(f"{nic.path}/numa_node", its, own)
    fix = filled(MOVE, nic=nic.name, bdf=nic.device.bdf, node=own)
    return warned(gpu.name, f"it is on NUMA node {own}, its nearest RDMA device {nic.name} on node {its}", *evidence, fix=fix)


CHECK = Check(ROW, look)
