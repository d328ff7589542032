"""NVIDIA's PCI devices, by sysfs alone: they are there whether or not a driver is."""

from busbw.host.pci import DEVICES, NVIDIA, driver, read_devices
from busbw.host.source import Source, once

SWITCH_CLASS = "0x0680"  # NVSwitch is a bridge without a more exact class
PASSED_ON = "vfio-pci"  # the driver of a device that a virtual machine of this host has, or is to get


@once
def gpus_on_pci(source: Source) -> tuple[str, ...]:
    """PCI addresses of the GPUs that NVIDIA's driver of this machine should have: without those of its virtual machines."""
    gpus = (bdf for bdf, device in read_devices(source).items() if device.gpu)
    return tuple(bdf for bdf in gpus if driver(source, bdf) != PASSED_ON)


def switches_on_pci(source: Source) -> tuple[str, ...]:
    """PCI addresses of NVSwitches."""
    names = (name for name in source.names(DEVICES) if source.read(f"{DEVICES}/{name}/vendor").text == NVIDIA)
    return tuple(name for name in names if (source.read(f"{DEVICES}/{name}/class").text or "").startswith(SWITCH_CLASS))
