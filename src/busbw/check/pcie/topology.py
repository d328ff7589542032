"""Where GPUs and network controllers are: PCIe switches and NUMA nodes."""

from collections.abc import Iterator

from busbw.check.base import check, judged, not_offered, passed, skipped, unread, warned
from busbw.check.machine import NONE, Machine, Part, gpus, nics, rdma_nics, with_cpu
from busbw.check.pcie.upstream import BRIDGES, nearest
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.cpu import count_list
from busbw.host.pci import shared

PATH = CheckRow(
    id="BW043",
    name="pcie-path",
    layer=Layer.PCIE,
    title="path from each GPU to its nearest RDMA device",
    right="both are under one PCIe switch",
    why=(
        "Otherwise their data goes through the CPU's root complex, and NCCL by default stages it in"
        " host memory."
    ),
    fix=(
        "drain the host and power it off; then move {nic} ({nic_bdf}) to a slot under the switch of"
        " the GPU at {gpu_bdf}"
    ),
    stays="permanent: hardware",
    reads=(BRIDGES,),
    sources=("NCCL user guide, NCCL_NET_GDR_LEVEL and NCCL_NET_GDR_C2C",),
)
NODES = "/sys/devices/system/node/online"
MOVE_NIC = (
    "drain the host and power it off; then move {nic} ({bdf}) to a slot of NUMA node {node}, or add"
    " one there"
)
FIND_NIC = (
    "busbw check --only nic-missing --only nic-present; lspci -t; if the GPU at {gpu_bdf} never had"
    " an RDMA device of its own, add one near it"
)
SAME_SWITCH = "update the BIOS: it gives parts under one PCIe switch different NUMA nodes"


@check(PATH)
def check_path(machine: Machine) -> Iterator[Finding]:
    cards, ports = gpus(machine), rdma_nics(machine)
    if not cards or not ports:
        yield skipped("no GPU" if not cards else "no RDMA device")
    elif machine.hypervisor:
        yield skipped(
            "a virtual machine shows no PCIe switches; set NCCL_TOPO_FILE to give NCCL the topology"
        )
    else:
        for gpu in cards:
            yield _judge_path(machine, gpu, ports, cards)


def _judge_path(machine: Machine, gpu: Part, ports: list[Part], cards: list[Part]) -> Finding:
    model = with_cpu(machine, gpu)
    if model:
        return skipped(f"{model} is connected to its CPU by NVLink-C2C", gpu.name)
    nic = nearest(gpu, ports, machine)
    if nic is None or gpu.device.above is None:
        return not_offered(gpu.name, f"{gpu.path} does not show which bridges are above it")
    return judged(
        right=shared(gpu.device, nic.device) > 0,
        subject=gpu.name,
        good=f"{nic.name} is under the same PCIe switch",
        bad=f"no RDMA device is under its PCIe switch; the nearest is {nic.name}",
        evidence=(
            Evidence(gpu.path, " > ".join(gpu.device.above) or "no bridge above it"),
            Evidence(
                nic.path,
                " > ".join(nic.device.above or ()) or "no bridge above it",
                "under the same switch",
            ),
        ),
        fix=filled(
            FIND_NIC if _others_have_one(gpu, cards, ports) else PATH.fix,
            nic=nic.name,
            nic_bdf=nic.device.bdf,
            gpu_bdf=gpu.device.bdf,
        ),
    )


def _others_have_one(gpu: Part, cards: list[Part], ports: list[Part]) -> bool:
    """Whether other GPUs have an RDMA device under their switch: then the one of this GPU may be
    missing, and those that are there must stay where they are.
    """
    others = [card for card in cards if card is not gpu]
    return any(shared(card.device, port.device) for card in others for port in ports)


NUMA = CheckRow(
    id="BW044",
    name="pcie-numa",
    layer=Layer.PCIE,
    title="NUMA nodes of GPUs and network controllers",
    right="known, and each GPU is on the same node as its nearest RDMA device",
    why=(
        "Without NUMA nodes NCCL cannot bind its threads near the GPU. Between two nodes all data"
        " crosses the link between the sockets."
    ),
    fix=(
        "drain the host; enable NUMA (ACPI SRAT) in the BIOS, or expose the nodes of the host to"
        " the virtual machine"
    ),
    stays="permanent: a BIOS or hypervisor setting",
    reads=("/sys/bus/pci/devices/*/numa_node", NODES),
    sources=("Linux, Documentation/ABI/testing/sysfs-bus-pci",),
)


@check(NUMA)
def check_numa(machine: Machine) -> Iterator[Finding]:
    """Each device has a node; each GPU and its nearest RDMA device have the same."""
    cards, ports = gpus(machine), rdma_nics(machine)
    # A hypervisor's own network devices have no node.
    parts = cards + (ports if machine.hypervisor else nics(machine))
    nodes = machine.read(NODES)
    if not parts:
        yield skipped(NONE)
    elif nodes.text is None:
        yield unread("", nodes, "the list of NUMA nodes")
    elif count_list(nodes.text) == 1:
        yield skipped("the machine has one NUMA node")
    else:
        without_node = [
            part for part in parts if not (machine.text(f"{part.path}/numa_node") or "").isdecimal()
        ]
        yield from (_judge_unknown_node(machine, part) for part in without_node)
        far = False
        for gpu in cards:
            nic = None if gpu in without_node else nearest(gpu, ports, machine)
            if nic is None or nic in without_node:
                continue
            remedy = FIND_NIC if _others_have_one(gpu, cards, ports) else MOVE_NIC
            if shared(gpu.device, nic.device):
                remedy = SAME_SWITCH
            finding = _judge_far(machine, gpu, nic, remedy)
            if finding:
                far = True
                yield finding
        if not without_node and not far:
            yield passed(
                "",
                "all GPUs and network controllers have a NUMA node, and no GPU is on a different"
                " node than its nearest RDMA device",
                Evidence(NODES, nodes.text),
            )


def _judge_unknown_node(machine: Machine, part: Part) -> Finding:
    path = f"{part.path}/numa_node"
    reading = machine.read(path)
    if reading.text is None:
        return unread(part.name, reading, "its NUMA node")
    return warned(
        part.name,
        "its NUMA node is unknown",
        Evidence(path, reading.text, "0 or more"),
        fix=NUMA.fix,
    )


def _judge_far(machine: Machine, gpu: Part, nic: Part, remedy: str) -> Finding | None:
    gpu_node, nic_node = (machine.text(f"{part.path}/numa_node") or "" for part in (gpu, nic))
    if gpu_node == nic_node:
        return None
    evidence = (
        Evidence(f"{gpu.path}/numa_node", gpu_node, nic_node),
        Evidence(f"{nic.path}/numa_node", nic_node, gpu_node),
    )
    fix = filled(remedy, nic=nic.name, bdf=nic.device.bdf, node=gpu_node, gpu_bdf=gpu.device.bdf)
    return warned(
        gpu.name,
        f"it is on NUMA node {gpu_node}, its nearest RDMA device {nic.name} on node {nic_node}",
        *evidence,
        fix=fix,
    )
