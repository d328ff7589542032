"""What sends traffic between devices through the CPU: ACS, the IOMMU, and ATS."""

from collections.abc import Iterator

from busbw.check.base import check, judged, passed, skipped, unread, warned
from busbw.check.machine import NONE, Machine, gpus, nics, rdma_nics
from busbw.check.pcie.upstream import BRIDGES, CONFIG, extended, group
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.host_ranges import fold
from busbw.host.gpu import for_guests
from busbw.host.pci import DEVICES, MELLANOX, device_directory, driver
from busbw.host.pci_config import REDIRECTING

REDIRECTING_MASK = sum(1 << bit for bit in REDIRECTING)

ACS = CheckRow(
    id="BW045",
    name="pcie-acs",
    layer=Layer.PCIE,
    title="Access Control Services (ACS) of the PCIe switches above GPUs and network controllers",
    right=(
        "off on bare metal without virtual machines; in a virtual machine the host needs ACS on,"
        " and the NIC needs ATS"
    ),
    why=(
        "With ACS on, traffic between a GPU and a NIC goes up through the CPU's root complex."
        " GPUDirect drops to half or less, or hangs."
    ),
    fix=(
        "drain the host; unless it runs virtual machines with passed-through devices (VFIO), "
        "which ACS isolates: "
        f"for b in {{bridges}}; do setpci -s $b ECAP_ACS+0x6.w=0000:{REDIRECTING_MASK:04x}; done"
    ),
    stays=(
        "after reboot: lost; run it from a systemd unit at boot, or turn off ACS or IO"
        " virtualization (VT-d, AMD-Vi) in the BIOS"
    ),
    reads=(BRIDGES, CONFIG),
    sources=(
        "NCCL user guide, troubleshooting: PCI Access Control Services",
        "NCCL issue 949, nccl-tests issue 112",
    ),
)
GROUPS, CMDLINE = "/sys/kernel/iommu_groups", "/proc/cmdline"
IDENTITY = "identity"
PASSTHROUGH = {"iommu=pt", "iommu.passthrough=1"}


@check(ACS)
def check_acs(machine: Machine) -> Iterator[Finding]:
    """Every switch port; a root port is not between a GPU and a NIC under one switch."""
    above: set[str] = set()
    for part in gpus(machine) + nics(machine):
        above |= set((part.device.above or ())[1:])
    ports = sorted(above)
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
    bits = {bdf: redirecting(config.acs or 0) for bdf, config in configs.read.items()}
    on = {bdf: names for bdf, names in bits.items() if names}
    if on:
        evidence = [
            Evidence(
                f"{device_directory(bdf)}/config, ACS control", "+ ".join(names) + "+", "all off"
            )
            for bdf, names in on.items()
        ]
        message = (
            f"ACS is on in {len(on)} of {len(ports)} switch ports: traffic between GPUs and NICs"
            " goes through the CPU"
        )
        yield warned("", message, *evidence, fix=filled(ACS.fix, bridges=list(on)))
    elif configs.read:
        first = next(iter(configs.read))
        yield passed(
            "",
            f"ACS is off in {len(configs.read)} switch ports",
            Evidence(f"{device_directory(first)}/config, ACS control", "off"),
        )


def redirecting(control: int) -> list[str]:
    """The bits that redirect or block traffic between devices, by lspci's names."""
    return [name for bit, name in REDIRECTING.items() if control & 1 << bit]


IOMMU = CheckRow(
    id="BW046",
    name="pcie-iommu",
    layer=Layer.PCIE,
    title="IOMMU for GPUs and network controllers",
    right="off, or in passthrough mode (iommu=pt; on Arm iommu.passthrough=1), on bare metal",
    why=(
        "With translation each DMA goes through the IOMMU's tables, and traffic between a GPU and a"
        " NIC may go through the CPU."
    ),
    fix=(
        "add iommu=pt (on Arm iommu.passthrough=1) to GRUB_CMDLINE_LINUX in /etc/default/grub, run"
        " update-grub (on RHEL: grubby --update-kernel=ALL --args=iommu=pt); then drain the host"
        " and reboot it"
    ),
    stays="permanent once the boot loader has it",
    reads=("the target of /sys/bus/pci/devices/*/iommu_group", f"{GROUPS}/*/type", CMDLINE),
    sources=(
        "NCCL user guide, troubleshooting: PCI Access Control Services",
        "Linux, Documentation/admin-guide/kernel-parameters.txt: iommu=, iommu.passthrough=",
    ),
)


@check(IOMMU)
def check_iommu(machine: Machine) -> Iterator[Finding]:
    """One finding for all devices, by the type of their IOMMU groups."""
    parts = gpus(machine) + nics(machine)
    if not parts or machine.hypervisor:
        yield skipped("in a virtual machine the host decides" if parts else NONE)
        return
    groups = {part: group(machine, part) for part in parts}
    types = {
        part: f"{GROUPS}/{number}/type" for part, number in groups.items() if number is not None
    }
    translated = [
        (part, path) for part, path in types.items() if machine.text(path) not in (None, IDENTITY)
    ]
    hidden = [path for path in types.values() if machine.text(path) is None]
    if translated:
        evidence = [Evidence(path, machine.text(path) or "", IDENTITY) for _, path in translated]
        of_gpus = [part.name for part, _ in translated if part.device.gpu]
        of_nics = [part.name for part, _ in translated if not part.device.gpu]
        named = ", ".join(fold(names) for names in (of_gpus, of_nics) if names)
        message = f"the IOMMU translates addresses of {named}"
        yield warned("", message, *evidence, fix=IOMMU.fix)
    if hidden and not PASSTHROUGH & set(machine.cmdline):
        yield unread("", machine.read(hidden[0]), "the type of an IOMMU group")
    elif not types and machine.text(CMDLINE) is None:  # nothing was read at all
        yield unread("", machine.read(CMDLINE), "the use of an IOMMU")
    elif not translated:
        message = "the IOMMU passes addresses through"
        evidence_of_use = Evidence(next(iter(types.values()), ""), IDENTITY)
        if not types:
            message = "the devices are in no IOMMU group: no IOMMU is in use"
            evidence_of_use = Evidence(f"{parts[0].path}/iommu_group", "no such link")
        yield passed("", message, evidence_of_use)


ATS = CheckRow(
    id="BW047",
    name="pcie-ats",
    layer=Layer.PCIE,
    title="Address Translation Services (ATS) of NICs in virtual machines",
    right="the NIC has ATS, so that it can reach a GPU under the same switch with ACS on",
    why=(
        "The host needs ACS for a virtual machine. Without ATS, traffic between a GPU and a NIC"
        " goes through the CPU's root complex."
    ),
    fix=(
        "on the host, with the address that this NIC has there instead of {bdf}: mlxconfig -d "
        "{bdf} set ATS_ENABLED=true; then move its virtual machines away and reboot it"
    ),
    stays="permanent, in the NIC's firmware; the host needs one reboot",
    reads=(CONFIG,),
    sources=(
        "NCCL user guide, troubleshooting: virtual machines",
        "NVIDIA AI Enterprise, ATS and ACS configuration",
    ),
)


@check(ATS)
def check_ats(machine: Machine) -> Iterator[Finding]:
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
                    evidence=(
                        Evidence(
                            f"{part.path}/config, extended capability 0x000f",
                            _ats_text(config.ats),
                            "present",
                        ),
                    ),
                    fix=filled(ATS.fix, bdf=part.device.bdf),
                )


def _ats_text(ats: bool | None) -> str:
    if ats is None:
        return "none"
    return "enabled" if ats else "present, not enabled"
