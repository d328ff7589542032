"""NVIDIA's PCI devices, by sysfs alone: they are there whether or not a driver is."""

from busbw.host.pci import DEVICES, NVIDIA, driver, read_devices
from busbw.host.source import Source, once

SWITCH_CLASS = "0x0680"  # NVSwitch is a bridge without a more exact class
# drivers that keep a device for a guest, besides those with vfio in their name
STUBS = ("pci-stub", "pciback", "xen-pciback")


def for_guests(name: str) -> bool:
    """Whether a driver holds a device that a virtual machine of this host has, or is to get:
    vfio-pci, nvgrace-gpu-vfio-pci, " "mlx5_vfio_pci.
    """
    return "vfio" in name or name in STUBS


@once
def gpus_on_pci(source: Source) -> tuple[str, ...]:
    """PCI addresses of the GPUs that NVIDIA's driver of this machine should have: without those
    of its virtual machines.
    """
    gpus = (bdf for bdf, device in read_devices(source).items() if device.gpu)
    return tuple(bdf for bdf in gpus if not for_guests(driver(source, bdf)))


def switches_on_pci(source: Source) -> tuple[str, ...]:
    """PCI addresses of NVSwitches."""
    names = (
        name
        for name in source.names(DEVICES)
        if source.read(f"{DEVICES}/{name}/vendor").text == NVIDIA
    )
    return tuple(
        name
        for name in names
        if (source.read(f"{DEVICES}/{name}/class").text or "").startswith(SWITCH_CLASS)
    )
