"""TCP connections of this process, and the ports of this host that can be addressed.

The kernel's TCP_INFO of each socket shows connections that lose packets.

Ports are interfaces with an IPv4 address, with their MTU, line rate and RDMA device. Addresses and
MTU come from the network namespace of this process. /sys shows the namespace that mounted it, so
rates and RDMA devices are left out where the two differ.
"""

import contextlib
import ipaddress
import os
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from busbw.core.rank_messages import Connection
from busbw.core.topology import Nic
from busbw.host.addresses import local, mtu
from busbw.host.links import same_namespace
from busbw.host.nic import RDMA, V2, read_gids, read_nics
from busbw.host.source import Source


def has_data(connection: socket.socket) -> bool:
    """Whether something waits to be read, or the other end was closed."""
    # recv would wait if the socket has a time limit.
    poll = select.poll()
    try:
        poll.register(connection, select.POLLIN)
    except (OSError, ValueError):  # closed meanwhile
        return False
    return bool(poll.poll(0))


LOSSY = 0.02  # of the segments sent; a healthy network of a cluster loses none
FEWEST = 2  # resent segments that are no coincidence
_INFO = socket.TCP_INFO if hasattr(socket, "TCP_INFO") else 11
# struct tcp_info of linux/tcp.h: tcpi_retransmits, tcpi_total_retrans, tcpi_bytes_received (Linux
# 4.1), tcpi_data_segs_out (4.6).
_TIMEOUTS, _RESENT, _RECEIVED, _SENT = 2, 100, 128, 156
_BYTES = 232

Ends = tuple[str, int, str, int]  # local address and port, the peer's address and port


@dataclass(frozen=True, slots=True)
class Counts:
    """Timeouts in a row of one connection, and how many segments it has resent and sent in all."""

    timeouts: int
    resent: int
    sent: int


def read() -> dict[Ends, Counts]:
    """All connections of this process."""
    connections = {}
    for entry in Path("/proc/self/fd").iterdir():
        # closed meanwhile, no socket, or no connection
        with contextlib.suppress(OSError, ValueError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                info = connection.getsockopt(socket.IPPROTO_TCP, _INFO, _BYTES)  # OSError if no TCP
                connections[_ends(connection)] = counts(info)
    return connections


def _ends(connection: socket.socket) -> Ends:
    """Both ends of a connection; OSError for a socket without a connection."""
    address, port, *_ = connection.getsockname()
    peer, peer_port, *_ = connection.getpeername()
    return address.removeprefix("::ffff:"), port, peer.removeprefix("::ffff:"), peer_port


def counts(info: bytes) -> Counts:
    """The counts in a struct tcp_info, 0 for those that the kernel lacks."""
    resent, sent = (
        struct.unpack_from("=I", info, offset)[0] if len(info) >= offset + 4 else 0
        for offset in (_RESENT, _SENT)
    )
    return Counts(info[_TIMEOUTS], resent, sent)


def received(connection: socket.socket) -> int:
    """Bytes that the connection has received, including those that nobody has read yet.

    0 if the kernel does not count them.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, _INFO, _BYTES)
    return int(struct.unpack_from("=Q", info, _RECEIVED)[0]) if len(info) >= _RECEIVED + 8 else 0


def lossy(before: Mapping[Ends, Counts]) -> list[Connection]:
    """The connections that wait after a timeout, or have lost packets since `before`.

    Packets are lost if more than LOSSY of the segments, and at least FEWEST, were resent.
    """
    interfaces = {str(address.ip): name for name, address in local().items() if address}
    connections = []
    for ends, now in read().items():
        then = before.get(ends, Counts(0, 0, 0))
        resent, sent = now.resent - then.resent, now.sent - then.sent
        if now.timeouts or (resent >= FEWEST and resent > LOSSY * sent):
            address, _, peer, _ = ends
            interface = interfaces.get(address, "")
            connections.append(Connection(address, peer, interface, now.timeouts, resent, sent))
    return connections


ETHERNET, ROCE, INFINIBAND = "ethernet", "roce", "ib"  # kinds of ports, as in topology.Nic


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One port of a host.

    `rate` is its line rate in bytes per second; None if unknown. `device` is its RDMA device.
    """

    name: str
    address: str
    network: str
    mtu: int | None = None
    rate: float | None = None
    kind: str = ETHERNET
    device: str = ""
    port: int = 1
    gid_index: int | None = None


def endpoints(source: Source) -> list[Endpoint]:
    """All ports with an address except loopback, in the kernel's order of interfaces."""
    addresses = {
        name: address for name, address in local().items() if address and not address.ip.is_loopback
    }
    sysfs_matches = same_namespace(source, {name for _index, name in socket.if_nameindex()})
    nics = {nic.netdev: nic for nic in reversed(read_nics(source))} if sysfs_matches else {}
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
    )


def _gid_index(source: Source, port: str, address: ipaddress.IPv4Address) -> int | None:
    """The index of the RoCE v2 GID with this address; None if the port has none."""
    for gid in read_gids(source, port):
        if gid.kind == V2 and gid.ipv4 == address:
            return gid.index
    return None
