"""The ports of this host that can be addressed: interfaces with an IPv4 address, their MTU and line
rate, and their RDMA device.

Addresses and MTU come from the network namespace of this process. /sys shows the namespace that
mounted it, so rates and RDMA devices are left out where the two differ.
"""

import ipaddress
import os
import socket

import msgspec

from busbw.core.topology import Nic
from busbw.host.addresses import local, mtu
from busbw.host.links import same_namespace
from busbw.host.nic import RDMA, V2, read_gids, read_nics, with_lab_rate
from busbw.host.source import Source

ETHERNET, ROCE, INFINIBAND = "ethernet", "roce", "ib"  # kinds of ports, as in topology.Nic


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One port of a host."""

    name: str
    address: str
    network: str
    mtu: int | None = None
    rate: float | None = None  # line rate in bytes per second; None if unknown
    kind: str = ETHERNET
    device: str = ""  # its RDMA device
    port: int = 1
    gid_index: int | None = None
    in_lab: bool = False  # whether the rate is the one given to `busbw lab`


def endpoints(source: Source) -> list[Endpoint]:
    """All ports with an address except loopback, in the kernel's order of interfaces."""
    addresses = {
        name: address for name, address in local().items() if address and not address.ip.is_loopback
    }
    sysfs_matches = same_namespace(source, {name for _index, name in socket.if_nameindex()})
    ports = with_lab_rate(read_nics(source), os.environ) if sysfs_matches else []
    nics = {nic.netdev: nic for nic in reversed(ports)}
    return [_endpoint(source, name, address, nics.get(name)) for name, address in addresses.items()]


def _endpoint(
    source: Source, name: str, address: ipaddress.IPv4Interface, nic: Nic | None
) -> Endpoint:
    device, port = "", "1"
    gid_index = None
    if nic is not None and nic.kind != ETHERNET:
        device, _, named_port = nic.name.partition(":")
        port = named_port or "1"
        gid_index = _gid_index(source, f"{RDMA}/{device}/ports/{port}", address.ip)
    return Endpoint(
        name=name,
        address=str(address.ip),
        network=str(address.network),
        mtu=mtu(name),
        rate=nic.rate if nic else None,
        kind=nic.kind if nic else ETHERNET,
        device=device,
        port=int(port),
        gid_index=gid_index,
        in_lab=nic is not None and nic.in_lab,
    )


def _gid_index(source: Source, port: str, address: ipaddress.IPv4Address) -> int | None:
    """The index of the RoCE v2 GID with this address; None if the port has none."""
    for gid in read_gids(source, port):
        if gid.kind == V2 and gid.ipv4 == address:
            return gid.index
    return None
