"""Plan of a link test: rounds of pairs, the rails to test, and the rate each link should reach.

`rounds` and `disjoint` group pairs that share no host; those of one round run at the same time.

`choose` selects the port of each host: by network, by name, or all networks that several hosts
share.

`limit` is how much data a link carries at its line rate, and `mark` is the pass mark of a healthy
link. A packet of `mtu` bytes takes more on the wire: headers, checksum and, on Ethernet, preamble
and gap. Sizes are those of the formats: Ethernet 14 + 4 + 20 bytes (IEEE 802.3), IPv4 20, UDP 8,
TCP 20 + 12 with timestamps (RFC 7323), and of InfiniBand the base transport header 12 and the
invariant checksum 4, with 10 more on an InfiniBand link.
"""

import ipaddress
import itertools
import random
import socket
from collections.abc import Iterable, Sequence

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.host_ranges import listed
from busbw.host.endpoints import ETHERNET, INFINIBAND, ROCE, Endpoint
from busbw.launch.hosts import without_user
from busbw.link.types import Rail

Pair = tuple[int, int]
ALL = "all"
_ETHERNET_BYTES = 14 + 4 + 20
_TCP_HEADERS = 20 + 20 + 12  # inside the MTU
# Inside the interface's MTU, with the extended header of the first packet of a write.
_ROCE_HEADERS = 20 + 8 + 12 + 16 + 4
_ROCE_BYTES = _ETHERNET_BYTES + 20 + 8 + 12 + 4
_IB_BYTES = 26
RDMA_MTUS = (4096, 2048, 1024, 512, 256)
HOST_MARK, GPU_MARK = 0.95, 0.90  # of the payload limit, from host and from GPU memory


def rounds(count: int, limit: int = 0, seed: int = 0) -> list[list[Pair]]:
    """All pairs of `count` hosts by the circle method: `count` - 1 rounds, or `count` if it is odd.

    Each pair comes once. With `limit` above 0 only that many rounds are drawn at random, so that
    each host meets random peers.
    """
    ring: list[int | None] = [*range(count)] if count % 2 == 0 else [*range(count), None]
    half = len(ring) // 2
    all_rounds = []
    for _ in range(len(ring) - 1):
        opposite = zip(ring[:half], reversed(ring), strict=False)
        pairs = [(a, b) for a, b in opposite if a is not None and b is not None]
        all_rounds.append([(min(pair), max(pair)) for pair in pairs])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    if 0 < limit < len(all_rounds):
        return random.Random(seed).sample(all_rounds, limit)
    return all_rounds


def disjoint(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Pairs in rounds that share no host, each in the first round with room for it."""
    all_rounds: list[list[Pair]] = []
    busy: list[set[int]] = []  # the hosts of each round
    for pair in pairs:
        at = next((at for at, hosts in enumerate(busy) if hosts.isdisjoint(pair)), len(busy))
        if at == len(busy):
            all_rounds.append([])
            busy.append(set())
        all_rounds[at].append(pair)
        busy[at].update(pair)
    return all_rounds


def pairs_without(pairs: Sequence[Pair], lost: Iterable[int]) -> list[Pair]:
    """The pairs that include none of the `lost` hosts."""
    gone = set(lost)
    return [pair for pair in pairs if not gone & set(pair)]


Ports = Sequence[Sequence[Endpoint]]  # of each host; empty for a host that did not answer


def choose(options: Sequence[str], ports: Ports, hosts: Sequence[str]) -> list[Rail]:
    """The rails that the `options` select; without any, the network of the hosts' own names.

    UsageError if a name or network selects fewer than two hosts, NoMeasurement if no two hosts
    share a network.
    """
    if not options:
        return [_default_rail(ports, hosts)]
    rails: list[Rail] = []
    for option in options:
        rails += common(ports) if option == ALL else [_select_rail(option, ports)]
    if not rails:
        raise NoMeasurement(
            f"no two of {listed(hosts)} have a port on the same network",
            f"name their ports: {_port_names(ports)}",
        )
    return rails


def common(ports: Ports) -> list[Rail]:
    """Networks on which two or more hosts have a port, those with the most hosts first.

    A network in which two hosts have the same address is internal to each host, such as that of a
    container bridge.
    """
    rails = []
    for network in dict.fromkeys(port.network for port in _flatten(ports)):
        rail = Rail(network, [_port_in_network(network, host_ports) for host_ports in ports])
        if _host_count(rail) > 1 and _has_distinct_addresses(rail):
            rails.append(rail)
    return sorted(rails, key=_host_count, reverse=True)


def _default_rail(ports: Ports, hosts: Sequence[str]) -> Rail:
    """The network that the hosts' names resolve to, or else the one that most hosts share."""
    shared = common(ports)
    if not shared:
        raise NoMeasurement(
            f"no two of {listed(hosts)} have a port on the same network",
            f"give --rail: {_port_names(ports)}",
        )
    for host in hosts:  # one name at a time, since each may wait for a name server
        addresses = _addresses(host)
        for rail in shared:
            if any(port and port.address in addresses for port in rail.endpoints):
                return rail
    return shared[0]


def _addresses(host: str) -> set[str]:
    try:
        infos = socket.getaddrinfo(without_user(host), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return set()  # a name that only ssh knows
    return {str(address[0]) for *_, address in infos}


def _select_rail(option: str, ports: Ports) -> Rail:
    """One port of each host: in a network, or by the name (or name prefix) of an interface, or
    an RDMA device's name.
    """
    find = _port_in_network if "/" in option else _port_by_name
    rail = Rail(option, [find(option, host_ports) for host_ports in ports])
    if _host_count(rail) < 2:
        raise UsageError(
            f"--rail {option}: {_host_count(rail)} of {len(ports)} hosts have such a port",
            f"they have {_port_names(ports)}",
        )
    return rail


def _port_by_name(name: str, ports: Sequence[Endpoint]) -> Endpoint | None:
    named = [port for port in ports if name in (port.name, port.device)]
    named += [port for port in ports if port.name.startswith(name)]
    return named[0] if named else None


def _port_in_network(network: str, ports: Sequence[Endpoint]) -> Endpoint | None:
    try:
        subnet = ipaddress.IPv4Network(network, strict=False)
    except ValueError as error:
        raise UsageError(
            f"--rail {network}: not an IPv4 network",
            "write a network like 10.1.0.0/16, or a name like eth0",
        ) from error
    return next((port for port in ports if ipaddress.IPv4Address(port.address) in subnet), None)


def _host_count(rail: Rail) -> int:
    return sum(port is not None for port in rail.endpoints)


def _has_distinct_addresses(rail: Rail) -> bool:
    addresses = [port.address for port in rail.endpoints if port]
    return len(set(addresses)) == len(addresses)


def _port_names(ports: Ports) -> str:
    names = dict.fromkeys(f"{port.name} ({port.network})" for port in _flatten(ports))
    return ", ".join(names) or "none with an IPv4 address"


def _flatten(ports: Ports) -> Iterable[Endpoint]:
    return itertools.chain.from_iterable(ports)


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
    """The highest rate of data between two ports, in bytes per second; None if a line rate or MTU
    is unknown, or the kinds of the ports differ.

    `mtu` is the RDMA MTU that the test reported. `line_rate` replaces a rate that no driver
    reports: an unknown one, and that of a lab.
    """
    ports = (sender, receiver)
    rates = [(line_rate if port.in_lab else None) or port.rate or line_rate for port in ports]
    kinds = {ETHERNET if tcp else port.kind for port in (sender, receiver)}
    kind = kinds.pop()
    mtu = _mtu(kind, sender, receiver) if tcp or mtu is None else mtu
    known = [rate for rate in rates if rate]
    if kinds or len(known) < 2 or not mtu or kind not in (ETHERNET, ROCE, INFINIBAND):
        return None
    return min(known) * share(kind, mtu)


def _mtu(kind: str, sender: Endpoint, receiver: Endpoint) -> int | None:
    mtus = [port.mtu for port in (sender, receiver) if port.mtu]
    if len(mtus) < 2 or kind == INFINIBAND:  # the MTU of IPoIB is not that of RDMA
        return None
    return min(mtus) if kind == ETHERNET else rdma_mtu(min(mtus))


def mark(limit: float, *, gpu: bool) -> float:
    """The rate at which a link passes that can carry `limit`, both in bytes per second."""
    return limit * (GPU_MARK if gpu else HOST_MARK)
