"""Which port of each host is tested: rails by network, by name, or all networks that several
hosts share.
"""

import ipaddress
import socket
from collections.abc import Sequence

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host.endpoints import Endpoint
from busbw.link.types import Rail

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
