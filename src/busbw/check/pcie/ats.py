"""Address Translation Services of NICs in virtual machines."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped
from busbw.check.machine import Machine
from busbw.check.parts import gpus, rdma_nics
from busbw.check.pcie.configs import extended
from busbw.check.pcie.upstream import CONFIG
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import MELLANOX

ROW = CheckRow(
    id="BW047",
    name="pcie-ats",
    layer=Layer.PCIE,
    title="Address Translation Services (ATS) of NICs in virtual machines",
    right="the NIC has ATS, so that it can reach a GPU under the same switch with ACS on",
    why="The host needs ACS for a virtual machine. Without ATS, traffic between a GPU and a NIC goes through the CPU's root complex.",
    fix="on the host, with the address that this NIC has there instead of {bdf}: mlxconfig -d {bdf} set ATS_ENABLED=true; then move "
    "its virtual machines away and reboot it",
    stays="permanent, in the NIC's firmware; the host needs one reboot",
    reads=(CONFIG,),
    sources=("NCCL user guide, troubleshooting: virtual machines", "NVIDIA AI Enterprise, ATS and ACS configuration"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each RDMA device of NVIDIA."""
    parts = [part for part in rdma_nics(machine) if part.device.vendor == MELLANOX]
    if not machine.hypervisor:
        yield skipped("this is not a virtual machine, according to DMI")
    elif not parts or not gpus(machine):
        yield skipped("no GPU with an RDMA device of NVIDIA")
    else:
        for part in parts:
            configs = extended(machine, [part.device.bdf])
            yield from configs.unread(part.name)
            for config in configs.read.values():
                yield judged(
                    right=config.ats is not None,
                    subject=part.name,
                    good="it has the ATS capability",
                    bad="it shows no ATS capability",
                    evidence=(Evidence(f"{part.path}/config, extended capability 0x000f", _shown(config.ats), "present"),),
                    fix=filled(ROW.fix, bdf=part.device.bdf),
                )


def _shown(ats: bool | None) -> str:
    return "none" if ats is None else "enabled" if ats else "present, not enabled"


CHECK = Check(ROW, look)
