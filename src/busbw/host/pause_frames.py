"""Global pause of an interface, as `ethtool -a` prints it (linux/ethtool.h).

It does not need root.
"""

import array
import socket
import struct
from dataclasses import asdict, dataclass

import msgspec

from busbw.host import ethtool
from busbw.host.source import Source

_GPAUSEPARAM = 0x12  # ETHTOOL_GPAUSEPARAM


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether the interface obeys pause frames (rx) and sends them (tx), for all traffic at
    once.
    """

    rx: bool
    tx: bool


def read_pause(source: Source, interface: str) -> Pause | str:
    """Global pause of an interface; a text says why it is unknown."""
    reading = source.call(f"ethtool -a {interface}", lambda: _ask(interface))
    return reading.reason if reading.data is None else msgspec.json.decode(reading.data, type=Pause)


def _ask(interface: str) -> str:
    buffer = array.array("B", struct.pack("=I12x", _GPAUSEPARAM))  # struct ethtool_pauseparam
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        ethtool.ask(opened, interface, buffer)
    _, _, rx, tx = struct.unpack("=IIII", buffer.tobytes())
    return msgspec.json.encode(asdict(Pause(bool(rx), bool(tx)))).decode()
