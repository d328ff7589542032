"""The network interfaces of this process's namespace: their IP addresses, their MTU, and whether
they have a link.

Each interface has its first IPv4 address and all its IPv6 addresses. The kernel is asked by ioctl,
because /sys/class/net shows the namespace that mounted it, which is another one in some containers.
"""

import fcntl
import ipaddress
import json
import socket
import struct
from collections.abc import Collection
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface

from busbw.host.source import Source

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


IPV4, IPV6 = "addresses", "/proc/net/if_inet6"
Address = IPv4Interface | IPv6Interface


def read_addresses(source: Source) -> dict[str, list[Address]] | str:
    """The addresses of each interface by its name, an empty list for one without an address.

    A text says why they are unknown.
    """
    reading = source.call(IPV4, _ipv4_json)
    if reading.text is None:
        return reading.reason
    addresses: dict[str, list[Address]] = {}
    for name, text in json.loads(reading.text).items():
        addresses[name] = [IPv4Interface(text)] if text else []
    for name, address in parse_inet6(source.read(IPV6).text or ""):
        addresses.setdefault(name, []).append(address)
    return addresses


def _ipv4_json() -> str:
    return json.dumps({name: str(address) if address else "" for name, address in local().items()})


def parse_inet6(text: str) -> list[tuple[str, IPv6Interface]]:
    """Name and address from each line of /proc/net/if_inet6.

    A line has the address, index, prefix length, scope and flags in hex, then the name.
    """
    addresses = []
    for fields in map(str.split, text.splitlines()):
        if len(fields) == 6 and len(fields[0]) == 32:
            try:
                address = IPv6Address(int(fields[0], 16))
                addresses.append((fields[5], IPv6Interface((address, int(fields[2], 16)))))
            except ValueError:
                continue
    return addresses


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


def linked(selected: Collection[str] = ()) -> frozenset[str]:
    """Names of the interfaces, loopback included, that have a link and may carry a job's data.

    Those are the `selected` ones, and those with an IPv4 address whose name is not one of VIRTUAL.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return frozenset(
            name
            for name in _present()
            if (name in selected or _may_carry_data(name)) and _has_link(sock, name)
        )


def lost(before: Collection[str], selected: Collection[str] = ()) -> list[str]:
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
