"""Which network interfaces have a link now.

By ioctl, because /sys shows another namespace in some containers.
"""

import fcntl
import socket
import struct
from collections.abc import Collection

from busbw.host.addresses import address

SIOCGIFFLAGS = 0x8913  # linux/sockios.h
IFF_UP, IFF_RUNNING = 0x1, 0x40  # linux/if.h: enabled, and with a carrier

# Usual names of interfaces of containers, virtual machines and tunnels, which appear and disappear
# on a busy host.
VIRTUAL = (
    "veth",
    "docker",
    "br-",
    "virbr",
    "bridge",
    "cni",
    "cali",
    "flannel",
    "lxc",
    "lxd",
    "podman",
    "vnet",
    "tun",
    "tap",
)
_IFREQ = struct.Struct("16sH22x")


def interfaces_with_link(selected: Collection[str] = ()) -> frozenset[str]:
    """Names of the interfaces, loopback included, that have a link and may carry a job's data.

    Those are the `selected` ones, and those with an IPv4 address whose name is not one of VIRTUAL.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return frozenset(
            name
            for name in _present()
            if (name in selected or _may_carry_data(name)) and _has_link(sock, name)
        )


def lost_links(before: Collection[str], selected: Collection[str] = ()) -> list[str]:
    """Interfaces that were linked `before` and have no link now, sorted by name.

    A deleted interface counts if it is `selected`.
    """
    present = _present()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return sorted(
            name
            for name in before
            if (name in present or name in selected) and not _has_link(sock, name)
        )


def _present() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def _may_carry_data(name: str) -> bool:
    return not name.startswith(VIRTUAL) and address(name) is not None


def _has_link(sock: socket.socket, name: str) -> bool:
    """Whether the interface is up and has a carrier."""
    try:
        reply = fcntl.ioctl(sock, SIOCGIFFLAGS, _IFREQ.pack(name.encode(), 0))
    except OSError:  # deleted in the meantime
        return False
    flags = int(_IFREQ.unpack(reply)[1])
    return bool(flags & IFF_UP and flags & IFF_RUNNING)
