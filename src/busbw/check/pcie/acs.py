"""Access Control Services of PCIe switches."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.parts import gpus, nics
from busbw.check.pcie.configs import extended
from busbw.check.pcie.upstream import BRIDGES, CONFIG
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_devices import for_guests
from busbw.host.pci import DEVICES, at, driver
from busbw.host.pci_config import REDIRECTING

MASK = sum(1 << bit for bit in REDIRECTING)

ROW = CheckRow(
    id="BW045",
    name="pcie-acs",
    layer=Layer.PCIE,
    title="Access Control Services (ACS) of the PCIe switches above GPUs and network controllers",
    right="off on bare metal without virtual machines; in a virtual machine the host needs ACS on, and the NIC needs ATS",
    why="With ACS on, traffic between a GPU and a NIC goes up through the CPU's root complex. GPUDirect drops to half or less, or hangs.",
    fix="drain the host; unless it runs virtual machines with passed-through devices (VFIO), which ACS isolates: "
    f"for b in {{bridges}}; do setpci -s $b ECAP_ACS+0x6.w=0000:{MASK:04x}; done",
    stays="lost at the next reboot; run it from a systemd unit at boot, or turn off ACS or IO virtualization (VT-d, AMD-Vi) in the BIOS",
    reads=(BRIDGES, CONFIG),
    sources=("NCCL user guide, troubleshooting: PCI Access Control Services", "NCCL issue 949, nccl-tests issue 112"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Every switch port; a root port is not between a GPU and a NIC under one switch."""
    ports = sorted({bridge for part in gpus(machine) + nics(machine) for bridge in (part.device.above or ())[1:]})
    if machine.hypervisor:
        yield skipped("a virtual machine needs ACS on its host; see pcie-ats")
        return
    if any(for_guests(driver(machine, bdf)) for bdf in machine.names(DEVICES)):
        yield skipped("this host passes devices to virtual machines, which ACS isolates")
        return
    if not ports:
        yield skipped("no PCIe switch above a GPU or network controller")
        return
    configs = extended(machine, ports)
    yield from configs.unread()
    on = {bdf: names for bdf, config in configs.read.items() if (names := redirecting(config.acs or 0))}
    if on:
        evidence = [Evidence(f"{at(bdf)}/config, ACS control", "+ ".join(names) + "+", "all off") for bdf, names in on.items()]
        message = f"ACS is on in {len(on)} of {len(ports)} switch ports: traffic between GPUs and NICs goes through the CPU"
        yield warned("", message, *evidence, fix=filled(ROW.fix, bridges=list(on)))
    elif configs.read:
        first = next(iter(configs.read))
        yield passed("", f"ACS is off in {len(configs.read)} switch ports", Evidence(f"{at(first)}/config, ACS control", "off"))


def redirecting(control: int) -> list[str]:
    """The bits that redirect or block traffic between devices, by lspci's names."""
    return [name for bit, name in REDIRECTING.items() if control & 1 << bit]


CHECK = Check(ROW, look)
