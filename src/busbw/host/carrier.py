"""Which network interfaces have a link now. Asked by ioctl and not in /sys, which shows another network to some containers."""

import fcntl
import socket
import struct

SIOCGIFFLAGS = 0x8913  # linux/sockios.h
IFF_UP, IFF_RUNNING = 0x1, 0x40  # linux/if.h: switched on, and carrying
_IFREQ = struct.Struct("16sH22x")


def linked() -> frozenset[str]:
    """Names of the interfaces, loopback too, that are up and have a carrier."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return frozenset(name for _, name in socket.if_nameindex() if _flags(asking, name) & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING)


def _flags(asking: socket.socket, name: str) -> int:
    try:
        reply = fcntl.ioctl(asking, SIOCGIFFLAGS, _IFREQ.pack(name.encode(), 0))
    except OSError:  # it went away meanwhile
        return 0
    return int(_IFREQ.unpack(reply)[1])
