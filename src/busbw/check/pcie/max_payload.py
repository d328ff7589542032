"""The payload size of PCIe packets between devices and the CPU."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.parts import NONE, gpus, nics, slots
from busbw.check.pcie.configs import express
from busbw.check.pcie.upstream import BRIDGES, CONFIG, plain
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import at

LEAST = 256

ROW = CheckRow(
    id="BW049",
    name="pcie-max-payload",
    layer=Layer.PCIE,
    title="PCIe max payload size from GPUs and network controllers to the root port",
    right=f"the same on the device and all bridges above it, and {LEAST} bytes or more",
    why="Small packets spend a larger share of the link on headers. A device may not send more than the smallest size on its path.",
    fix="drain the host; set Max Payload Size to Auto in the BIOS, or add pci=pcie_bus_safe to GRUB_CMDLINE_LINUX in /etc/default/grub "
    "and run update-grub (on RHEL: grubby --update-kernel=ALL --args=pci=pcie_bus_safe); then reboot",
    stays="survives a reboot, as a BIOS setting or on the kernel's command line",
    reads=(BRIDGES, CONFIG),
    sources=("Linux, Documentation/admin-guide/kernel-parameters.txt: pcie_bus_safe",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each slot's device and the bridges above it."""
    parts = slots(gpus(machine) + nics(machine))
    if machine.hypervisor or not parts:
        yield skipped("in a virtual machine the host sets it" if parts else NONE)
        return
    for part in parts:
        if plain(machine, part):
            yield skipped("it is not a PCI Express device", part.name)
            continue
        configs = express(machine, (part.device.bdf, *reversed(part.device.above or ())))
        yield from configs.unread(part.name)
        if configs.reasons:
            continue
        sizes = {bdf: config.max_payload or 0 for bdf, config in configs.read.items()}
        least, *others = sorted(set(sizes.values()))
        evidence = [Evidence(f"{at(bdf)}/config, Device Control", f"{size} bytes", "equal along the path") for bdf, size in sizes.items()]
        if not others and least >= LEAST:
            yield passed(part.name, f"packets carry up to {least} bytes on the whole path", *evidence)
        else:
            seen = f"up to {least} bytes" if not others else " and ".join(map(str, (least, *others))) + " bytes"
            yield warned(part.name, f"packets on its path carry {seen}", *evidence, fix=ROW.fix)


CHECK = Check(ROW, look)
