"""Which pairs are measured at the same time: rounds of pairs that share no host.

Which port of each host is tested: rails by network, by name, or all networks that several
hosts share.

How much data a link carries at its line rate, and the pass mark of a healthy link.

A packet of `mtu` bytes takes more on the wire: headers, checksum and, on Ethernet, preamble and
gap. Sizes are those of the formats: Ethernet 14 + 4 + 20 bytes (IEEE 802.3), IPv4 20, UDP 8, TCP 20
+ 12 with timestamps (RFC 7323), and of InfiniBand the base transport header 12 and the invariant
checksum 4, with 10 more on an InfiniBand link.
"""

import ipaddress
import random
import socket
from collections.abc import Iterable, Sequence

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host.tcp_connections import ETHERNET, INFINIBAND, ROCE, Endpoint
from busbw.link.types import Rail

Pair = tuple[int, int]


def rounds(count: int, most: int = 0, seed: int = 0) -> list[list[Pair]]:
    """All pairs of `count` hosts, by the circle method: count - 1 rounds, count if it is odd.

    Each pair comes once. With `most` above 0, that many rounds in random order, so that each host
    meets random peers.
    """
    ring: list[int | None] = [*range(count)] if count % 2 == 0 else [*range(count), None]
    half = len(ring) // 2
    found = []
    for _ in range(len(ring) - 1):
        pairs = ((ring[at], ring[-1 - at]) for at in range(half))
        found.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    if 0 < most < len(found):
        return random.Random(seed).sample(found, most)
    return found


def disjoint(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Pairs in rounds that share no host, each in the first round with room for it."""
    found: list[tuple[set[int], list[Pair]]] = []
    for a, b in pairs:
        place = next((one for one in found if not one[0] & {a, b}), None)
        if place is None:
            place = set(), []
            found.append(place)
        place[0].update((a, b))
        place[1].append((a, b))
    return [round_ for _, round_ in found]


def without(pairs: Sequence[Pair], lost: Iterable[int]) -> list[Pair]:
    """The pairs that include none of the `lost` hosts."""
    gone = set(lost)
    return [pair for pair in pairs if not gone & set(pair)]


ALL = "all"
Ports = Sequence[Sequence[Endpoint]]  # of each host; empty for a host that did not answer


def choose(asked: Sequence[str], ports: Ports, hosts: Sequence[str]) -> list[Rail]:
    """The rails that the options `asked` select; without any, the network of the hosts' own names.

    UsageError if a name or network selects fewer than two hosts, NoMeasurement if no two hosts
    share a network.
    """
    if not asked:
        return [_own(ports, hosts)]
    rails: list[Rail] = []
    for text in asked:
        rails += common(ports) if text == ALL else [_named(text, ports)]
    if not rails:
        raise NoMeasurement(
            f"no two of {', '.join(hosts)} have a port on the same network",
            f"name their ports: {_existing(ports)}",
        )
    return rails


def common(ports: Ports) -> list[Rail]:
    """Networks on which two or more hosts have a port, those with the most hosts first.

    A network in which two hosts have the same address is internal to each host, such as a container
    bridge's.
    """
    networks = dict.fromkeys(port.network for some in ports for port in some)
    rails = [Rail(network, [_in(network, some) for some in ports]) for network in networks]
    return sorted(
        (rail for rail in rails if _joined(rail) > 1 and _distinct(rail)),
        key=lambda rail: -_joined(rail),
    )


def _own(ports: Ports, hosts: Sequence[str]) -> Rail:
    """The network that the hosts' names resolve to, or else the one that most hosts share."""
    shared = common(ports)
    if not shared:
        raise NoMeasurement(
            f"no two of {', '.join(hosts)} have a port on the same network",
            f"give --rail: {_existing(ports)}",
        )
    for host in hosts:  # one name at a time, since each may wait for a name server
        addresses = _addresses(host)
        for rail in shared:
            if any(port and port.address in addresses for port in rail.endpoints):
                return rail
    return shared[0]


def _addresses(host: str) -> set[str]:
    try:
        return {
            str(found[4][0])
            for found in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        }
    except OSError:
        return set()  # a name that only ssh knows


def _named(text: str, ports: Ports) -> Rail:
    """One port of each host: in a network, or by the name (or name prefix) of an interface, or
    an RDMA device's name.
    """
    rail = Rail(text, [_in(text, some) if "/" in text else _by_name(text, some) for some in ports])
    if _joined(rail) < 2:
        raise UsageError(
            f"--rail {text}: {_joined(rail)} of the hosts have such a port",
            f"they have {_existing(ports)}",
        )
    return rail


def _by_name(text: str, some: Sequence[Endpoint]) -> Endpoint | None:
    exact = [port for port in some if text in (port.name, port.device)]
    return next(iter(exact or [port for port in some if port.name.startswith(text)]), None)


def _in(network: str, some: Sequence[Endpoint]) -> Endpoint | None:
    try:
        wanted = ipaddress.IPv4Network(network, strict=False)
    except ValueError as error:
        raise UsageError(
            f"--rail {network}: not an IPv4 network",
            "write a network like 10.1.0.0/16, or a name like eth0",
        ) from error
    return next((port for port in some if ipaddress.IPv4Address(port.address) in wanted), None)


def _joined(rail: Rail) -> int:
    return sum(port is not None for port in rail.endpoints)


def _distinct(rail: Rail) -> bool:
    addresses = [port.address for port in rail.endpoints if port]
    return len(set(addresses)) == len(addresses)


def _existing(ports: Ports) -> str:
    return (
        ", ".join(dict.fromkeys(f"{port.name} ({port.network})" for some in ports for port in some))
        or "none with an IPv4 address"
    )


_ETHERNET_BYTES = 14 + 4 + 20
_TCP_HEADERS = 20 + 20 + 12  # inside the MTU
# inside the interface's MTU, with the extended header of the first packet of a write
_ROCE_HEADERS = 20 + 8 + 12 + 16 + 4
_ROCE_BYTES = _ETHERNET_BYTES + 20 + 8 + 12 + 4
_IB_BYTES = 26
RDMA_MTUS = (4096, 2048, 1024, 512, 256)
HOST_MARK, GPU_MARK = 0.95, 0.90  # of the payload limit, from host and from GPU memory


def share(kind: str, mtu: int) -> float:
    """The share of the line rate that is data.

    `mtu` is the interface's for `ethernet` (TCP), the path's for `roce` and `ib`.
    """
    if kind == ETHERNET:
        return (mtu - _TCP_HEADERS) / (mtu + _ETHERNET_BYTES)
    return mtu / (mtu + {ROCE: _ROCE_BYTES, INFINIBAND: _IB_BYTES}[kind])


def rdma_mtu(interface_mtu: int) -> int | None:
    """The largest RDMA MTU that fits the MTU of a RoCE interface; None if none does."""
    return next((mtu for mtu in RDMA_MTUS if mtu + _ROCE_HEADERS <= interface_mtu), None)


def limit(
    sender: Endpoint,
    receiver: Endpoint,
    *,
    tcp: bool,
    mtu: int | None = None,
    line_rate: float | None = None,
) -> float | None:
    """The most data in bytes per second between two ports; None if a line rate or MTU is unknown,
    or the kinds differ.

    `mtu` is the RDMA MTU that the test reported. `line_rate` replaces a rate that the driver does
    not report.
    """
    rates = [one.rate or line_rate for one in (sender, receiver)]
    kinds = {ETHERNET if tcp else one.kind for one in (sender, receiver)}
    kind = kinds.pop()
    mtu = _mtu(kind, sender, receiver) if tcp or mtu is None else mtu
    known = [rate for rate in rates if rate]
    if kinds or len(known) < 2 or not mtu or kind not in (ETHERNET, ROCE, INFINIBAND):
        return None
    return min(known) * share(kind, mtu)


def _mtu(kind: str, sender: Endpoint, receiver: Endpoint) -> int | None:
    mtus = [one.mtu for one in (sender, receiver) if one.mtu]
    if len(mtus) < 2 or kind == INFINIBAND:  # the MTU of IPoIB is not that of RDMA
        return None
    return min(mtus) if kind == ETHERNET else rdma_mtu(min(mtus))


def mark(most: float, *, gpu: bool) -> float:
    """The rate in bytes per second at which a link passes."""
    return most * (GPU_MARK if gpu else HOST_MARK)
