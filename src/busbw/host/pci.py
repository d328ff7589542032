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
class Device:
    """One PCI function.

    `above` are the bridges over it from the root port down; None if the device's place is not
    known.
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
        """Whether it is an NVIDIA GPU, and not a virtual function that a host of vGPUs makes of
        one.
        """
        return self.vendor == NVIDIA and self.kind.startswith(DISPLAY) and not self.virtual

    @property
    def network(self) -> bool:
        """Whether it is a network controller."""
        return self.kind.startswith(NETWORK)


def at(bdf: str) -> str:
    """The directory of a device."""
    return f"{DEVICES}/{bdf}"


@once
def read_devices(source: Source) -> dict[str, Device]:
    """All devices by address."""
    return {bdf: _device(source, bdf) for bdf in source.names(DEVICES)}


def _device(source: Source, bdf: str) -> Device:
    vendor, kind = (source.read(f"{at(bdf)}/{name}").text or "" for name in ("vendor", "class"))
    if not kind.startswith((DISPLAY, NETWORK)):
        return Device(bdf, vendor, kind, None)
    return Device(
        bdf,
        vendor,
        kind,
        bridges(source.link(at(bdf)), bdf),
        source.link(f"{at(bdf)}/physfn") is not None,
    )


def driver(source: Source, bdf: str) -> str:
    """The name of the device's driver; '' without one."""
    return (source.link(f"{at(bdf)}/driver") or "").rpartition("/")[2]


def bridges(target: str | None, bdf: str) -> tuple[str, ...] | None:
    """Addresses in the target of a device's link in /sys/bus/pci/devices, without its own; None
    if it is not such a link.
    """
    steps = (target or "").split("/")
    if steps[-1] != bdf:
        return None
    return tuple(step for step in steps[:-1] if _BDF.fullmatch(step))


@dataclass(frozen=True, slots=True)
class Link:
    """One end's view of its link: lanes, and 10^9 transfers per second a lane.

    None: not known, as in a virtual function.
    """

    width: int | None
    width_max: int | None
    speed: float | None
    speed_max: float | None


def read_link(source: Source, bdf: str) -> Link:
    """The link of a device, or below a bridge."""
    width, width_max = (
        _width(source.read(f"{at(bdf)}/{which}_link_width").text) for which in ("current", "max")
    )
    speed, speed_max = (
        _speed(source.read(f"{at(bdf)}/{which}_link_speed").text) for which in ("current", "max")
    )
    return Link(width, width_max, speed, speed_max)


def _width(text: str | None) -> int | None:
    lanes = number(text)
    # 0, 63 and 255 stand for no link or an unknown width
    return lanes if lanes is not None and 1 <= lanes <= 32 else None


def _speed(text: str | None) -> float | None:
    match = _SPEED.match(text or "")
    return float(match.group(1)) if match else None


def errors(text: str) -> dict[str, int]:
    """Counts by name of a file aer_dev_*, without its total; lines of another form are left out."""
    rows = (line.rpartition(" ") for line in text.splitlines())
    return {
        name: int(count)
        for name, _, count in rows
        if name and count.isdecimal() and not name.startswith("TOTAL_")
    }


def shared(one: Device, other: Device) -> int:
    """How many bridges two devices have in common, counted from the root port; 0 if a place is
    not known.
    """
    count = 0
    for mine, its in zip(one.above or (), other.above or (), strict=False):
        if mine != its:
            break
        count += 1
    return count


def links(device: Device) -> list[tuple[str, str]]:
    """The links from the device up to the root port, each as (upper end, lower end); the upper end
    is '' where it is not known.

    Between two links lies a switch, which shows as two bridges.
    """
    path = [*(device.above or ()), device.bdf]
    pairs = list(pairwise(["", *path])) if len(path) == 1 else list(pairwise(path))
    return pairs[::-2]
