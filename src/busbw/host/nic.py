"""The network ports of a machine, and the GID table of an RDMA port, from sysfs.

Ports are the RDMA ports, then the interfaces without RDMA. The files of RDMA ports are described in
Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import msgspec

from busbw.core.env import LAB_RATE
from busbw.core.topology import Nic
from busbw.host.cpu import numa_node
from busbw.host.interfaces import Interface, is_hardware, number, read_interfaces
from busbw.host.source import Source

V2 = "RoCE v2"
_GAP = 16  # as many empty entries end the search; tables have up to 256, filled from the start
RDMA = "/sys/class/infiniband"
GBIT = 1e9 / 8
KINDS = {"InfiniBand": "ib", "Ethernet": "roce"}
_RATE = re.compile(r"([\d.]+) Gb/sec")


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry. `kind` and `netdev` are empty where the network namespace hides them."""

    index: int
    address: IPv6Address
    kind: str  # RoCE v2, IB/RoCE v1
    netdev: str

    @property
    def ipv4(self) -> IPv4Address | None:
        """The IPv4 address that the GID stands for; None if it stands for none."""
        return self.address.ipv4_mapped

    @property
    def routable(self) -> bool:
        """Whether routers forward its packets: its address is not link-local."""
        return not (self.ipv4 or self.address).is_link_local


def read_gids(source: Source, port: str) -> tuple[Gid, ...]:
    """The entries in use of the port at the directory `port`, by index.

    Empty if the table cannot be read.
    """
    gids: list[Gid] = []
    empty = index = 0
    while empty < _GAP:
        address = _address(source.read(f"{port}/gids/{index}").text)
        if address is None:
            empty += 1
        else:
            empty = 0
            kind = source.read(f"{port}/gid_attrs/types/{index}").text or ""
            netdev = source.read(f"{port}/gid_attrs/ndevs/{index}").text or ""
            gids.append(Gid(index, address, kind, netdev))
        index += 1
    return tuple(gids)


def _address(text: str | None) -> IPv6Address | None:
    try:
        address = IPv6Address(text or "::")
    except ValueError:
        return None
    return address if int(address) else None


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
    netdevs = {(device, port): _netdev(source, device, port, interfaces) for device, port in ports}
    ports_of = Counter(netdevs.values())
    nics = []
    for (device, port), netdev in netdevs.items():
        only_port = ports_of[netdev] == 1
        nics.append(_rdma(source, device, port, interfaces.get(netdev), only_port=only_port))
    without_rdma = [
        interface
        for interface in interfaces.values()
        if interface.name not in ports_of and not interface.rdma and not interface.master
    ]
    return nics + [_ethernet(interface) for interface in without_rdma]


def with_lab_rate(nics: Sequence[Nic], environ: Mapping[str, str]) -> list[Nic]:
    """The ports; virtual ones on a host of `busbw lab` get the rate that `environ` states."""
    text = environ.get(LAB_RATE, "")
    if not text.isdecimal():
        return list(nics)
    return [
        msgspec.structs.replace(nic, rate=float(text), in_lab=True) if nic.virtual else nic
        for nic in nics
    ]


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
    source: Source, device: str, port: str, interface: Interface | None, *, only_port: bool
) -> Nic:
    base = f"{RDMA}/{device}/ports/{port}"
    layer = source.read(f"{base}/link_layer").text or ""
    up = (source.read(f"{base}/state").text or "").endswith("ACTIVE")
    hardware = is_hardware(source, f"{RDMA}/{device}")
    several = len(source.names(f"{RDMA}/{device}/ports")) > 1
    # The RDMA device of a whole bond reports the rate of one slave. If each slave has a device,
    # each reports its own rate.
    bond = interface if interface is not None and interface.slaves and only_port else None
    rate = None
    if up and hardware:  # a port that is down reports its lowest rate
        rate = bond.rate if bond else _rate(source.read(f"{base}/rate").text)
    return Nic(
        name=f"{device}:{port}" if several else device,
        kind=KINDS.get(layer, "rdma"),
        rate=rate,
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
    """The interface of an RDMA port, or the bond that the interface belongs to.

    The port's own name if it has no interface.
    """
    of_device = source.names(f"{RDMA}/{device}/device/net")
    by_gid = source.read(f"{RDMA}/{device}/ports/{port}/gid_attrs/ndevs/0").text
    of_port = [
        name
        for name in of_device
        if number(source.read(f"/sys/class/net/{name}/dev_port").text) == int(port) - 1
    ]
    name = by_gid or next(iter(of_port or of_device), "")
    master = interfaces[name].master if name in interfaces else ""
    return master or name or f"{device}:{port}"
