"""The network ports of a machine, from sysfs: RDMA ports first, then the interfaces without
RDMA.

The GID table of an RDMA port, from sysfs (Documentation/ABI/stable/sysfs-class-infiniband).
"""

import re
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from busbw.core.topology import Nic
from busbw.host.cpu import numa_node
from busbw.host.interfaces import Interface, is_hardware, number, read_interfaces
from busbw.host.source import Source

V2 = "RoCE v2"
_GAP = 16  # as many empty entries end the search; tables have up to 256, filled from the start


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry. `kind` and `netdev` are empty where the network namespace hides them."""

    index: int
    address: IPv6Address
    kind: str  # RoCE v2, IB/RoCE v1
    netdev: str

    @property
    def ipv4(self) -> IPv4Address | None:
        """The IPv4 address that it stands for."""
        return self.address.ipv4_mapped

    @property
    def routable(self) -> bool:
        """Whether routers forward it: an IPv4 address, or an IPv6 address that is not
        link-local.
        """
        return not (self.ipv4 or self.address).is_link_local


def read_gids(source: Source, port: str) -> tuple[Gid, ...]:
    """The entries in use of the port at this directory, by index.

    Empty if the table cannot be read.
    """
    found: list[Gid] = []
    empty = index = 0
    while empty < _GAP:
        address = _address(source.read(f"{port}/gids/{index}").text)
        if address is None:
            empty += 1
        else:
            empty = 0
            kind, netdev = (
                source.read(f"{port}/gid_attrs/{name}/{index}").text or ""
                for name in ("types", "ndevs")
            )
            found.append(Gid(index, address, kind, netdev))
        index += 1
    return tuple(found)


def _address(text: str | None) -> IPv6Address | None:
    try:
        address = IPv6Address(text or "::")
    except ValueError:
        return None
    return address if int(address) else None


RDMA = "/sys/class/infiniband"
GBIT = 1e9 / 8
KINDS = {"InfiniBand": "ib", "Ethernet": "roce"}
_RATE = re.compile(r"([\d.]+) Gb/sec")


def read_nics(source: Source) -> list[Nic]:
    """Every port that can carry traffic, RDMA ports first, sorted by name.

    Slaves of a bond are part of the bond only.
    """
    interfaces = read_interfaces(source)
    ports = [
        (device, port)
        for device in source.names(RDMA)
        for port in source.names(f"{RDMA}/{device}/ports")
    ]
    netdevs = {pair: _netdev(source, *pair, interfaces) for pair in ports}
    sharing = Counter(netdevs.values())
    nics = []
    for pair in ports:
        netdev = netdevs[pair]
        nics.append(_rdma(source, *pair, interfaces.get(netdev), alone=sharing[netdev] == 1))
    rest = (i for i in interfaces.values() if i.name not in sharing and not i.rdma and not i.master)
    return nics + [_ethernet(interface) for interface in rest]


def _ethernet(interface: Interface) -> Nic:
    return Nic(
        name=interface.name,
        kind="ethernet",
        rate=interface.rate if interface.physical and interface.up else None,
        netdev=interface.name,
        numa=interface.numa,
        virtual=not interface.physical,
        up=interface.up,
        mtu=interface.mtu,
        slaves=list(interface.slaves),
    )


def _rdma(
    source: Source, device: str, port: str, interface: Interface | None, *, alone: bool
) -> Nic:
    base = f"{RDMA}/{device}/ports/{port}"
    layer = source.read(f"{base}/link_layer").text or ""
    up = (source.read(f"{base}/state").text or "").endswith("ACTIVE")
    hardware = is_hardware(source, f"{RDMA}/{device}")
    several = len(source.names(f"{RDMA}/{device}/ports")) > 1
    # The RDMA device of a whole bond reports the rate of one slave. If each slave has a device,
    # each reports its own rate.
    bond = interface if interface is not None and interface.slaves and alone else None
    return Nic(
        name=f"{device}:{port}" if several else device,
        kind=KINDS.get(layer, "rdma"),
        # A port that is down reports its lowest rate.
        rate=(
            (bond.rate if bond else _rate(source.read(f"{base}/rate").text))
            if up and hardware
            else None
        ),
        netdev=interface.name if interface else "",
        numa=numa_node(source, f"{RDMA}/{device}/device"),
        virtual=not hardware,
        up=up,
        mtu=interface.mtu if interface else None,
        slaves=list(bond.slaves) if bond else [],
    )


def _rate(text: str | None) -> float | None:
    match = _RATE.match(text or "")
    return float(match.group(1)) * GBIT if match else None


def _netdev(source: Source, device: str, port: str, interfaces: dict[str, Interface]) -> str:
    """The interface of an RDMA port, or the bond that it belongs to; the port's own name if it
    has no interface.
    """
    names = source.names(f"{RDMA}/{device}/device/net")
    named = source.read(f"{RDMA}/{device}/ports/{port}/gid_attrs/ndevs/0").text
    on_port = [
        name
        for name in names
        if number(source.read(f"/sys/class/net/{name}/dev_port").text) == int(port) - 1
    ]
    name = named or next(iter(on_port or names), "")
    master = interfaces[name].master if name in interfaces else ""
    return master or name or f"{device}:{port}"
