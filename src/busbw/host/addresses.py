"""The interfaces of this process's network namespace with their first IPv4 address.

The kernel is asked by ioctl, because /sys/class/net shows the namespace that mounted it, which is
another one in some containers. `ip_addresses` reads all addresses through a `Source`, which a
snapshot records.
"""

import fcntl
import ipaddress
import socket
import struct

_SIOCGIFADDR, _SIOCGIFNETMASK, _SIOCGIFMTU = 0x8915, 0x891B, 0x8921
_IFREQ_BYTES, _ADDRESS = 40, slice(20, 24)  # the kernel ends a name after 15 bytes


def local() -> dict[str, ipaddress.IPv4Interface | None]:
    """The interfaces by name, each with its first IPv4 address or None."""
    return {name: address(name) for _index, name in socket.if_nameindex()}


def address(name: str) -> ipaddress.IPv4Interface | None:
    """An interface's first IPv4 address and network; None if it has none or does not exist."""
    request = struct.pack(f"{_IFREQ_BYTES}s", name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            ip = fcntl.ioctl(probe, _SIOCGIFADDR, request)[_ADDRESS]
            mask = fcntl.ioctl(probe, _SIOCGIFNETMASK, request)[_ADDRESS]
        except OSError:
            return None
    return ipaddress.IPv4Interface(f"{socket.inet_ntoa(ip)}/{socket.inet_ntoa(mask)}")


def mtu(interface: str) -> int | None:
    """The MTU of an interface; None if it does not exist."""
    request = struct.pack(f"{_IFREQ_BYTES}s", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return int(struct.unpack_from("i", fcntl.ioctl(probe, _SIOCGIFMTU, request), 16)[0])
        except OSError:
            return None
