"""The PCIe path from a GPU to its nearest RDMA device."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, not_offered, skipped
from busbw.check.machine import Machine
from busbw.check.parts import Part, gpus, rdma_nics, with_cpu
from busbw.check.pcie.upstream import BRIDGES, nearest
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import shared

ROW = CheckRow(
    id="BW043",
    name="pcie-path",
    layer=Layer.PCIE,
    title="path from each GPU to its nearest RDMA device",
    right="both are under one PCIe switch",
    why="Otherwise their data goes through the CPU's root complex, and NCCL by default stages it in host memory.",
    fix="drain the host and power it off; then move {nic} ({nic_bdf}) to a slot under the switch of the GPU at {gpu_bdf}",
    stays="permanent: hardware",
    reads=(BRIDGES,),
    sources=("NCCL user guide, NCCL_NET_GDR_LEVEL and NCCL_NET_GDR_C2C",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    cards, ports = gpus(machine), rdma_nics(machine)
    if not cards or not ports:
        yield skipped("no GPU" if not cards else "no RDMA device")
    elif machine.hypervisor:
        yield skipped("a virtual machine shows no PCIe switches; set NCCL_TOPO_FILE to give NCCL the topology")
    else:
        for gpu in cards:
            yield _path(machine, gpu, ports)


def _path(machine: Machine, gpu: Part, ports: list[Part]) -> Found:
    if model := with_cpu(machine, gpu):
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
            Evidence(nic.path, " > ".join(nic.device.above or ()) or "no bridge above it", "under the same switch"),
        ),
        fix=filled(ROW.fix, nic=nic.name, nic_bdf=nic.device.bdf, gpu_bdf=gpu.device.bdf),
    )


CHECK = Check(ROW, look)
