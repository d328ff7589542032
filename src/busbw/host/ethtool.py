"""Statistics, driver and global pause of a network interface (linux/ethtool.h).

They are what `ethtool -S`, `ethtool -i` and `ethtool -a` print. None of them needs root.
"""

import array
import errno
import fcntl
import socket
import struct
from dataclasses import asdict, dataclass

import msgspec

from busbw.host.source import Source, Unavailable, once

_SIOCETHTOOL = 0x8946
_GDRVINFO, _GSTRINGS, _GSTATS, _GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
_STATS, _NAME_BYTES = 1, 32  # ETH_SS_STATS, ETH_GSTRING_LEN
# struct ethtool_drvinfo: its size, and where its texts lie
_DRVINFO_BYTES = 196
_DRIVER, _VERSION, _FIRMWARE, _BUS = slice(4, 36), slice(36, 68), slice(68, 100), slice(100, 132)
_STATISTICS_LIMIT = 1 << 16  # of one interface
# The kernel writes as many values as the driver has, whatever the request says; their number grows
# with the queues, at any time.
_SPARE = 4096
_GPAUSEPARAM = 0x12  # ETHTOOL_GPAUSEPARAM


@dataclass(frozen=True, slots=True)
class Driver:
    """What drives an interface; texts are empty where the driver says nothing."""

    name: str
    version: str
    firmware: str
    bus: str


class Statistics:
    """The statistics of one interface, to be read often.

    Unavailable if it has none; `close` releases the socket.
    """

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._interface = interface
        try:
            self.names = self._names()
        except Unavailable:
            self.close()
            raise
        self._buffer = self._values()

    def _count(self) -> int:
        sizes = array.array("B", struct.pack("<IIQI", _GSSET_INFO, 0, 1 << _STATS, 0))
        self._ask(sizes)
        _, _, mask, count = struct.unpack("<IIQI", sizes.tobytes())
        if not mask or not 0 < count <= _STATISTICS_LIMIT:
            raise Unavailable(f"{self._interface} has no statistics")
        return int(count)

    def _names(self) -> tuple[str, ...]:
        count = self._count()
        header = struct.pack("<III", _GSTRINGS, _STATS, count)
        strings = array.array("B", header + bytes(_NAME_BYTES * (count + _SPARE)))
        self._ask(strings)
        texts = strings.tobytes()[len(header) : len(header) + _NAME_BYTES * count]
        offsets = range(0, len(texts), _NAME_BYTES)
        return tuple(_text(texts[offset : offset + _NAME_BYTES]) for offset in offsets)

    def _values(self) -> "array.array[int]":
        return array.array("B", bytes(8 + 8 * (len(self.names) + _SPARE)))

    def read(self) -> dict[str, int]:
        """All values by name.

        Unavailable if the interface is gone, or if its statistics change meanwhile.
        """
        if self._count() != len(self.names):
            self.names = self._names()
            self._buffer = self._values()
        struct.pack_into("<II", self._buffer, 0, _GSTATS, len(self.names))
        self._ask(self._buffer)
        if struct.unpack_from("<I", self._buffer, 4) != (len(self.names),):
            raise Unavailable(f"{self._interface}: the number of its statistics changes")
        values = struct.unpack_from(f"<{len(self.names)}Q", self._buffer, 8)
        return dict(zip(self.names, values, strict=True))

    def _ask(self, buffer: "array.array[int]") -> None:
        ask(self._socket, self._interface, buffer)

    def close(self) -> None:
        self._socket.close()


def ask(sock: socket.socket, interface: str, buffer: "array.array[int]") -> None:
    """Do one ioctl with `buffer` as its argument, which it fills; Unavailable with the reason."""
    # struct ifreq
    request = struct.pack("16sP", interface.encode()[:15], buffer.buffer_info()[0]).ljust(40, b"\0")
    try:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
    except OSError as error:
        reason = "no such interface" if error.errno == errno.ENODEV else str(error.strerror).lower()
        raise Unavailable(f"{interface}: {reason}") from error


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "replace").strip()


def _statistics_json(interface: str) -> str:
    counters = Statistics(interface)
    try:
        return msgspec.json.encode(counters.read()).decode()
    finally:
        counters.close()


def _driver_json(interface: str) -> str:
    buffer = array.array("B", struct.pack("<I", _GDRVINFO) + bytes(_DRVINFO_BYTES - 4))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        ask(sock, interface, buffer)
    data = buffer.tobytes()
    texts = (_text(data[part]) for part in (_DRIVER, _VERSION, _FIRMWARE, _BUS))
    return msgspec.json.encode(asdict(Driver(*texts))).decode()


@once
def statistics(source: Source, interface: str) -> dict[str, int] | str:
    """Statistics of an interface, by name; a text says why there are none."""
    reading = source.call(f"ethtool -S {interface}", lambda: _statistics_json(interface))
    if reading.data is None:
        return reading.reason
    return msgspec.json.decode(reading.data, type=dict[str, int])


def driver(source: Source, interface: str) -> Driver | str:
    """The driver of an interface; a text says why it is unknown."""
    reading = source.call(f"ethtool -i {interface}", lambda: _driver_json(interface))
    if reading.data is None:
        return reading.reason
    return msgspec.json.decode(reading.data, type=Driver)


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether the interface obeys pause frames (rx) and sends them (tx), for all its traffic."""

    rx: bool
    tx: bool


def read_pause(source: Source, interface: str) -> Pause | str:
    """Global pause of an interface; a text says why it is unknown."""
    reading = source.call(f"ethtool -a {interface}", lambda: _pause_json(interface))
    return reading.reason if reading.data is None else msgspec.json.decode(reading.data, type=Pause)


def _pause_json(interface: str) -> str:
    buffer = array.array("B", struct.pack("=I12x", _GPAUSEPARAM))  # struct ethtool_pauseparam
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        ask(sock, interface, buffer)
    _, _, rx, tx = struct.unpack("=IIII", buffer.tobytes())
    return msgspec.json.encode(asdict(Pause(bool(rx), bool(tx)))).decode()
