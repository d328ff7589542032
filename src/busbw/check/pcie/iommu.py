"""Whether the IOMMU translates the addresses of GPUs and network controllers."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE, gpus, nics
from busbw.check.pcie.upstream import group
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

GROUPS, CMDLINE = "/sys/kernel/iommu_groups", "/proc/cmdline"
IDENTITY = "identity"
PASSTHROUGH = {"iommu=pt", "iommu.passthrough=1"}

ROW = CheckRow(
    id="BW046",
    name="pcie-iommu",
    layer=Layer.PCIE,
    title="IOMMU for GPUs and network controllers",
    right="off, or in passthrough mode (iommu=pt; on Arm iommu.passthrough=1), on bare metal",
    why="With translation each DMA goes through the IOMMU's tables, and traffic between a GPU and a NIC may go through the CPU.",
    fix="add iommu=pt (on Arm iommu.passthrough=1) to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub (on RHEL: grubby "
    "--update-kernel=ALL --args=iommu=pt); then drain the host and reboot it",
    stays="permanent once the boot loader has it",
    reads=("the target of /sys/bus/pci/devices/*/iommu_group", f"{GROUPS}/*/type", CMDLINE),
    sources=(
        "NCCL user guide, troubleshooting: PCI Access Control Services",
        "Linux, Documentation/admin-guide/kernel-parameters.txt: iommu=, iommu.passthrough=",
    ),
)


def look(machine: Machine) -> Iterator[Found]:
    """The type of the IOMMU group of each device."""
    parts = gpus(machine) + nics(machine)
    if not parts or machine.hypervisor:
        yield skipped("in a virtual machine the host decides" if parts else NONE)
        return
    groups = {part: number for part in parts if (number := group(machine, part)) is not None}
    types = {part: f"{GROUPS}/{number}/type" for part, number in groups.items()}
    translated = [(part, path) for part, path in types.items() if machine.text(path) not in (None, IDENTITY)]
    hidden = [path for path in types.values() if machine.text(path) is None]
    if translated:
        evidence = [Evidence(path, machine.text(path) or "", IDENTITY) for _, path in translated]
        message = f"the IOMMU translates addresses of {', '.join(part.name for part, _ in translated)}"
        yield warned("", message, *evidence, fix=ROW.fix)
    if hidden and not PASSTHROUGH & set(machine.cmdline):
        yield unread("", machine.read(hidden[0]), "the type of an IOMMU group")
    elif not types and machine.text(CMDLINE) is None:  # nothing was read at all
        yield unread("", machine.read(CMDLINE), "the use of an IOMMU")
    elif not translated:
        seen = Evidence(next(iter(types.values())), IDENTITY) if types else Evidence(f"{parts[0].path}/iommu_group", "no such link")
        yield passed("", "the IOMMU passes addresses through" if types else "the devices are in no IOMMU group: no IOMMU is in use", seen)


CHECK = Check(ROW, look)
