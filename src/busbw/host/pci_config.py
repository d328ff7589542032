"""The PCI configuration space: registers of PCI Express, and of Access Control and Address
Translation Services.
"""

from dataclasses import dataclass, field
from functools import cached_property

from busbw.host.pci import device_directory
from busbw.host.source import Source

HEADER = 64  # bytes of the configuration space that every user may read

# Capabilities and registers of linux/pci_regs.h.
EXPRESS, ACS, ATS = 0x10, 0x000D, 0x000F

# bits of the ACS control register, as lspci names them
REDIRECTING = {0: "SrcValid", 2: "ReqRedir", 3: "CmpltRedir", 4: "UpstreamFwd"}


@dataclass(frozen=True)
class PciConfig:
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


def read_config(source: Source, bdf: str) -> PciConfig | str:
    """The configuration space beyond its header, or why it cannot be read."""
    reading = source.read(f"{device_directory(bdf)}/config")
    if reading.data is None:
        return reading.reason
    if len(reading.data) <= HEADER:
        return (
            f"{device_directory(bdf)}/config: only its first {len(reading.data)} bytes are"
            " readable; the rest needs root"
        )
    return PciConfig(reading.data)


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
