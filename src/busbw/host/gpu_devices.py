"""NVIDIA's PCI devices, by sysfs alone: they are there whether or not a driver is."""

from busbw.host.gpu import DISPLAY_CLASS, NVIDIA
from busbw.host.source import Source

DEVICES = "/sys/bus/pci/devices"
SWITCH_CLASS = "0x0680"  # NVSwitch is a bridge without a more exact class


def gpus_on_pci(source: Source) -> tuple[str, ...]:
    """PCI addresses of GPUs."""
    return _of_class(source, DISPLAY_CLASS)


def switches_on_pci(source: Source) -> tuple[str, ...]:
    """PCI addresses of NVSwitches."""
    return _of_class(source, SWITCH_CLASS)


def _of_class(source: Source, prefix: str) -> tuple[str, ...]:
    names = (name for name in source.names(DEVICES) if source.read(f"{DEVICES}/{name}/vendor").text == NVIDIA)
    return tuple(name for name in names if (source.read(f"{DEVICES}/{name}/class").text or "").startswith(prefix))
