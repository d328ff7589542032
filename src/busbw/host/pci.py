"""PCI devices from sysfs: what each is, the bridges above it, its link and its errors."""

import re
from dataclasses import dataclass
from itertools import pairwise

from busbw.host.interfaces import number
from busbw.host.source import Source, once

DEVICES = "/sys/bus/pci/devices"
NVIDIA, MELLANOX, AMAZON, AMD = "0x10de", "0x15b3", "0x1d0f", "0x1022"
DISPLAY, NETWORK, ETHERNET = "0x03", "0x02", "0x0200"  # first bytes of the class
_BDF = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([\d.]+) GT/s")


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function.

    `above` has the bridges above it, from the root port down; None if they are not known.
    """

    bdf: str  # 0000:1b:00.0
    vendor: str  # 0x10de
    kind: str  # class: 0x030200
    above: tuple[str, ...] | None
    virtual: bool = False  # a virtual function of another device of this machine

    @property
    def slot(self) -> str:
        """The address without the function: functions of one slot share its link."""
        return self.bdf.rpartition(".")[0]

    @property
    def gpu(self) -> bool:
        """Whether it is an NVIDIA GPU, not a virtual function of one as on a host of vGPUs."""
        return self.vendor == NVIDIA and self.kind.startswith(DISPLAY) and not self.virtual

    @property
    def network(self) -> bool:
        return self.kind.startswith(NETWORK)


def device_directory(bdf: str) -> str:
    """The directory of a device."""
    return f"{DEVICES}/{bdf}"


@once
def read_devices(source: Source) -> dict[str, PciDevice]:
    """All devices by address."""
    return {bdf: _device(source, bdf) for bdf in source.names(DEVICES)}


def _device(source: Source, bdf: str) -> PciDevice:
    vendor = source.read(f"{device_directory(bdf)}/vendor").text or ""
    kind = source.read(f"{device_directory(bdf)}/class").text or ""
    if not kind.startswith((DISPLAY, NETWORK)):
        return PciDevice(bdf, vendor, kind, None)
    above = bridges(source.link(device_directory(bdf)), bdf)
    virtual = source.link(f"{device_directory(bdf)}/physfn") is not None
    return PciDevice(bdf, vendor, kind, above, virtual)


def driver(source: Source, bdf: str) -> str:
    """The name of the device's driver; '' without one."""
    return (source.link(f"{device_directory(bdf)}/driver") or "").rpartition("/")[2]


def bridges(target: str | None, bdf: str) -> tuple[str, ...] | None:
    """Addresses of the bridges above a device, from the root port down.

    `target` is where the device's link in /sys/bus/pci/devices leads; None for any other path.
    """
    steps = (target or "").split("/")
    if steps[-1] != bdf:
        return None
    return tuple(step for step in steps[:-1] if _BDF.fullmatch(step))


@dataclass(frozen=True, slots=True)
class PcieLink:
    """A link as one of its ends reports it: lanes, and 10^9 transfers per second a lane.

    None where a value is not known, as in a virtual function.
    """

    width: int | None
    width_max: int | None
    speed: float | None
    speed_max: float | None


def read_link(source: Source, bdf: str) -> PcieLink:
    """The link of a device, or the link below a bridge."""
    folder = device_directory(bdf)
    return PcieLink(
        width=_width(source.read(f"{folder}/current_link_width").text),
        width_max=_width(source.read(f"{folder}/max_link_width").text),
        speed=_speed(source.read(f"{folder}/current_link_speed").text),
        speed_max=_speed(source.read(f"{folder}/max_link_speed").text),
    )


def _width(text: str | None) -> int | None:
    lanes = number(text)
    # 0, 63 and 255 stand for no link or an unknown width
    return lanes if lanes is not None and 1 <= lanes <= 32 else None


def _speed(text: str | None) -> float | None:
    match = _SPEED.match(text or "")
    return float(match.group(1)) if match else None


def errors(text: str) -> dict[str, int]:
    """Counts by name in the text of a file aer_dev_*, without their total.

    Lines of another form are left out.
    """
    rows = (line.rpartition(" ") for line in text.splitlines())
    return {
        name: int(count)
        for name, _, count in rows
        if name and count.isdecimal() and not name.startswith("TOTAL_")
    }


def shared(device: PciDevice, other: PciDevice) -> int:
    """How many bridges two devices have in common, counted from the root port.

    0 if the bridges of a device are not known.
    """
    count = 0
    for bridge, other_bridge in zip(device.above or (), other.above or (), strict=False):
        if bridge != other_bridge:
            break
        count += 1
    return count


def links(device: PciDevice) -> list[tuple[str, str]]:
    """The links from the device up to the root port, each as (upper end, lower end).

    The upper end is '' where it is not known. Between two links lies a switch, which shows as two
    bridges.
    """
    path = [*(device.above or ("",)), device.bdf]
    return list(pairwise(path))[::-2]
