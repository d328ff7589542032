"""Relaxed ordering of NICs."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.parts import rdma_nics
from busbw.check.pcie.configs import express
from busbw.check.pcie.upstream import CONFIG, amd_host
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import MELLANOX

BIT = 1 << 4

ROW = CheckRow(
    id="BW050",
    name="pcie-relaxed-ordering",
    layer=Layer.PCIE,
    title="relaxed ordering of NVIDIA NICs",
    right="enabled on hosts with AMD CPUs; not judged on others",
    why="Without relaxed ordering a NIC's writes are strictly ordered, which is slow on AMD hosts in particular.",
    fix=f"drain the host; setpci -s {{bdf}} CAP_EXP+8.w={BIT:04x}:{BIT:04x}",
    stays="lost at the next reboot; enable relaxed ordering in the BIOS, or run the command from a systemd unit",
    reads=(CONFIG, "/sys/bus/pci/devices/*/vendor of the root port"),
    sources=("NCCL user guide, NCCL_IB_PCI_RELAXED_ORDERING", "PCI Express Base Specification, Device Control register"),
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
            control = config.control or 0
            evidence = Evidence(f"{part.path}/config, Device Control", f"{control:#06x}", f"bit {BIT:#06x}")
            if config.relaxed_ordering:
                yield passed(part.name, "relaxed ordering is enabled", evidence)
            elif amd_host(machine, part):
                fix = filled(ROW.fix, bdf=part.device.bdf)
                yield warned(part.name, "relaxed ordering is not enabled, on a host with an AMD CPU", evidence, fix=fix)
            else:
                yield skipped("relaxed ordering is off, which is judged only on hosts with AMD CPUs", part.name)


CHECK = Check(ROW, look)
