"""The size of a NIC's read requests."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped
from busbw.check.machine import Machine
from busbw.check.parts import rdma_nics
from busbw.check.pcie.configs import express
from busbw.check.pcie.upstream import CONFIG
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import MELLANOX

BEST = 4096
CODE, FIELD = 5 << 12, 7 << 12  # 4096 bytes in the Device Control register, and the bits of the size

ROW = CheckRow(
    id="BW048",
    name="pcie-max-read-request",
    layer=Layer.PCIE,
    title="PCIe max read request size of NVIDIA NICs",
    right=f"{BEST} bytes",
    why="The NIC reads the data it sends from memory. With requests of 512 bytes it needs more requests in flight for the same rate.",
    fix=f"drain the host; setpci -s {{bdf}} CAP_EXP+8.w={CODE:04x}:{FIELD:04x}",
    stays="lost at the next reboot; set it in a systemd unit or udev rule, or with NVIDIA's NIC Configuration Operator",
    reads=(CONFIG,),
    sources=("NVIDIA Network Operator, NIC configuration: pciPerformanceOptimized",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each RDMA device of NVIDIA."""
    parts = [part for part in rdma_nics(machine) if part.device.vendor == MELLANOX]
    if machine.hypervisor or not parts:
        yield skipped("in a virtual machine the host sets it" if parts else "no RDMA device of NVIDIA")
        return
    for part in parts:
        configs = express(machine, [part.device.bdf])
        yield from configs.unread(part.name)
        for config in configs.read.values():
            size, control = config.max_read_request or 0, config.control or 0
            yield judged(
                right=size >= BEST,
                subject=part.name,
                good=f"it reads up to {size} bytes per request",
                bad=f"it reads up to {size} bytes per request, not {BEST}",
                evidence=(Evidence(f"{part.path}/config, Device Control", f"{control:#06x}: {size} bytes", f"{BEST} bytes"),),
                fix=filled(ROW.fix, bdf=part.device.bdf),
            )


CHECK = Check(ROW, look)
