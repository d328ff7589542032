"""Which network interfaces have a link now. Asked by ioctl and not in /sys, which shows another network to some containers."""

import fcntl
import socket
import struct
from collections.abc import Collection

from busbw.host.addresses import address

SIOCGIFFLAGS = 0x8913  # linux/sockios.h
IFF_UP, IFF_RUNNING = 0x1, 0x40  # linux/if.h: switched on, and carrying
# Ends of other people's containers, virtual machines and tunnels, as their makers name them; they come and go on a busy host.
VIRTUAL = ("veth", "docker", "br-", "virbr", "bridge", "cni", "cali", "flannel", "lxc", "lxd", "podman", "vnet", "tun", "tap")
_IFREQ = struct.Struct("16sH22x")


def linked(selected: Collection[str] = ()) -> frozenset[str]:
    """Names of the interfaces, loopback too, that are up, have a carrier, and may matter to a job.

    Those are the `selected` ones, and those with an IPv4 address whose name is none of a container's or a tunnel's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return frozenset(name for name in _present() if (name in selected or _own(name)) and _carries(asking, name))


def lost(before: Collection[str], selected: Collection[str] = ()) -> list[str]:
    """Those that were linked `before` and have no link now, in order of name.

    One that is not there any more was taken away by somebody, and counts where it is `selected`.
    """
    present = _present()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return sorted(name for name in before if (name in present or name in selected) and not _carries(asking, name))


def _present() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def _own(name: str) -> bool:
    return not name.startswith(VIRTUAL) and address(name) is not None


def _carries(asking: socket.socket, name: str) -> bool:
    return _flags(asking, name) & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING


def _flags(asking: socket.socket, name: str) -> int:
    try:
        reply = fcntl.ioctl(asking, SIOCGIFFLAGS, _IFREQ.pack(name.encode(), 0))
    except OSError:  # it went away meanwhile
        return 0
    return int(_IFREQ.unpack(reply)[1])
