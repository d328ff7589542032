"""PCI devices from sysfs: what each is, the bridges above it, its link and its errors.

`Config` reads the configuration space: the registers of PCI Express, and of Access Control and
Address Translation Services.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
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
    vendor = source.read(f"{at(bdf)}/vendor").text or ""
    kind = source.read(f"{at(bdf)}/class").text or ""
    if not kind.startswith((DISPLAY, NETWORK)):
        return Device(bdf, vendor, kind, None)
    above = bridges(source.link(at(bdf)), bdf)
    virtual = source.link(f"{at(bdf)}/physfn") is not None
    return Device(bdf, vendor, kind, above, virtual)


def driver(source: Source, bdf: str) -> str:
    """The name of the device's driver; '' without one."""
    return (source.link(f"{at(bdf)}/driver") or "").rpartition("/")[2]


def bridges(target: str | None, bdf: str) -> tuple[str, ...] | None:
    """Addresses of the bridges above a device, from the root port down.

    `target` is where the device's link in /sys/bus/pci/devices leads; None for any other path.
    """
    steps = (target or "").split("/")
    if steps[-1] != bdf:
        return None
    return tuple(step for step in steps[:-1] if _BDF.fullmatch(step))


@dataclass(frozen=True, slots=True)
class Link:
    """A link as one of its ends reports it: lanes, and 10^9 transfers per second a lane.

    None where a value is not known, as in a virtual function.
    """

    width: int | None
    width_max: int | None
    speed: float | None
    speed_max: float | None


def read_link(source: Source, bdf: str) -> Link:
    """The link of a device, or the link below a bridge."""
    folder = at(bdf)
    return Link(
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


def shared(device: Device, other: Device) -> int:
    """How many bridges two devices have in common, counted from the root port.

    0 if the bridges of a device are not known.
    """
    count = 0
    for bridge, other_bridge in zip(device.above or (), other.above or (), strict=False):
        if bridge != other_bridge:
            break
        count += 1
    return count


def links(device: Device) -> list[tuple[str, str]]:
    """The links from the device up to the root port, each as (upper end, lower end).

    The upper end is '' where it is not known. Between two links lies a switch, which shows as two
    bridges.
    """
    path = [*(device.above or ("",)), device.bdf]
    return list(pairwise(path))[::-2]


HEADER = 64  # bytes of the configuration space that every user may read

# Capabilities and registers of linux/pci_regs.h.
EXPRESS, ACS, ATS = 0x10, 0x000D, 0x000F
# bits of the ACS control register, as lspci names them
REDIRECTING = {0: "SrcValid", 2: "ReqRedir", 3: "CmpltRedir", 4: "UpstreamFwd"}


@dataclass(frozen=True)
class Config:
    """A configuration space. What the bytes do not show is None."""

    data: bytes = field(repr=False)

    @cached_property
    def _express(self) -> int | None:
        return _capability(self.data, EXPRESS)

    @cached_property
    def _extended(self) -> dict[int, int]:
        return _extended(self.data)

    @property
    def present(self) -> bool:
        """Whether the device answers; all bits of one that was lost read as 1."""
        return self.data[:2] != b"\xff\xff"

    @property
    def extended(self) -> bool:
        """Whether the bytes reach beyond the 256 that PCI had, to the extended capabilities."""
        return len(self.data) > 256

    @property
    def control(self) -> int | None:
        """The Device Control register of PCI Express."""
        return None if self._express is None else _word(self.data, self._express + 8)

    @property
    def max_payload(self) -> int | None:
        """Largest payload of a packet in bytes."""
        return None if self.control is None else 128 << (self.control >> 5 & 7)

    @property
    def max_read_request(self) -> int | None:
        """Largest read request in bytes."""
        return None if self.control is None else 128 << (self.control >> 12 & 7)

    @property
    def relaxed_ordering(self) -> bool | None:
        """Whether the device may set the attribute Relaxed Ordering."""
        return None if self.control is None else bool(self.control & 1 << 4)

    @property
    def acs(self) -> int | None:
        """The control register of Access Control Services."""
        return None if ACS not in self._extended else _word(self.data, self._extended[ACS] + 6)

    @property
    def ats(self) -> bool | None:
        """Whether Address Translation Services are enabled."""
        control = None if ATS not in self._extended else _word(self.data, self._extended[ATS] + 6)
        return None if control is None else bool(control & 1 << 15)


def read_config(source: Source, bdf: str) -> Config | str:
    """The configuration space beyond its header, or why it cannot be read."""
    reading = source.read(f"{at(bdf)}/config")
    if reading.data is None:
        return reading.reason
    if len(reading.data) <= HEADER:
        return (
            f"{at(bdf)}/config: only its first {len(reading.data)} bytes are readable; the rest"
            " needs root"
        )
    return Config(reading.data)


def _word(data: bytes, offset: int) -> int | None:
    return int.from_bytes(data[offset : offset + 2], "little") if offset + 2 <= len(data) else None


def _capability(data: bytes, capability: int) -> int | None:
    """Offset of a capability in the list of the first 256 bytes; None if the list lacks it."""
    if len(data) < HEADER or not data[6] & 1 << 4:  # status: no list of capabilities
        return None
    offset, visited = data[0x34] & ~3, set[int]()
    while HEADER <= offset <= len(data) - 2 and offset not in visited:
        if data[offset] == capability:
            return offset
        visited.add(offset)
        offset = data[offset + 1] & ~3
    return None


def _extended(data: bytes) -> dict[int, int]:
    """Offsets of extended capabilities by their id; of several with one id the first."""
    offsets: dict[int, int] = {}
    offset, visited = 256, set[int]()
    while 256 <= offset <= len(data) - 4 and offset not in visited:
        header = int.from_bytes(data[offset : offset + 4], "little")
        visited.add(offset)
        offsets.setdefault(header & 0xFFFF, offset)
        offset = header >> 20 & ~3
    return offsets
