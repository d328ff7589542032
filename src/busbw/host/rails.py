"""NICs by name, and the variables that make NCCL, Gloo and UCX use them alone."""

import ipaddress
import platform
from collections.abc import Collection, Mapping, Sequence

import msgspec

from busbw.core.errors import NoMeasurement, UsageError
from busbw.host.endpoints import ETHERNET, Endpoint, endpoints
from busbw.host.nic import read_nics
from busbw.host.source import Source

# Variables by which libraries choose NICs, and which `select` sets.
SELECTING = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES")


class NicChoice(msgspec.Struct, frozen=True):
    """An RDMA device (`mlx5_0`, `mlx5_0:2`), an interface, or the network in which hosts have an
    address. `rate` is its line rate in bytes per second, None if it is unknown.
    """

    name: str
    rate: float | None = None


class Selected(msgspec.Struct, frozen=True):
    """The rails as this host has them, with their rates, and the variables that select them."""

    rails: list[NicChoice]
    variables: dict[str, str]
    rdma: bool


def of_this_host(source: Source) -> list[str]:
    """Its RDMA devices with a known rate; without any, the interfaces with one, by their networks,
    which hosts share, or by their names where a network has several.
    """
    rdma = [nic.name for nic in read_nics(source) if nic.kind != ETHERNET and nic.rate]
    ports = endpoints(source)
    networks = [port.network for port in ports]
    return rdma or [
        port.network if networks.count(port.network) == 1 else port.name
        for port in ports
        if port.rate
    ]


def select(rails: Sequence[NicChoice], source: Source) -> Selected:
    """The rails on this host. NoMeasurement if it lacks one, or if only some are RDMA devices;
    UsageError if two are the same interface.
    """
    devices = {nic.name: nic.rate for nic in read_nics(source) if nic.kind != ETHERNET}
    rdma = [rail.name for rail in rails if rail.name in devices]
    chosen = {
        rail.name: _port(rail.name, source, devices) for rail in rails if rail.name not in devices
    }
    if rdma and chosen:
        raise NoMeasurement(
            f"--rail {rdma[0]} is an RDMA device, and --rail {next(iter(chosen))} is none",
            "name RDMA devices alone, or interfaces and networks alone",
        )
    if rdma:
        found = [NicChoice(rail.name, rail.rate or devices[rail.name]) for rail in rails]
        with_port = [rail.name if ":" in rail.name else f"{rail.name}:1" for rail in rails]
        names = ",".join(rail.name for rail in rails)
        variables = {"NCCL_IB_HCA": f"={names}", "UCX_NET_DEVICES": ",".join(with_port)}
        return Selected(found, variables, rdma=True)
    _check_distinct(chosen)
    found = [NicChoice(rail.name, rail.rate or chosen[rail.name].rate) for rail in rails]
    names = ",".join(port.name for port in chosen.values())
    variables = {
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": f"={names}",
        "GLOO_SOCKET_IFNAME": names,
        "UCX_NET_DEVICES": names,
    }
    return Selected(found, variables, rdma=False)


def _check_distinct(chosen: Mapping[str, Endpoint]) -> None:
    """UsageError if two names mean one interface."""
    named: dict[str, str] = {}
    for name, port in chosen.items():
        other = named.setdefault(port.name, name)
        if other != name:
            raise UsageError(
                f"--rail {other} and --rail {name} are the same interface", "name each NIC once"
            )


def _port(name: str, source: Source, devices: Collection[str]) -> Endpoint:
    """The interface of that name, or the first with an address in that network."""
    ports = endpoints(source)
    try:
        network = ipaddress.ip_network(name, strict=False)
    except ValueError:
        found = [port for port in ports if port.name == name]
    else:
        found = [port for port in ports if ipaddress.ip_address(port.address) in network]
    if not found:
        has = [*devices, *(f"{port.name} ({port.network})" for port in ports)]
        raise NoMeasurement(
            f"--rail {name}: {platform.node()} has no such RDMA device, interface or network",
            f"it has {', '.join(has) or 'none'}",
        )
    return found[0]
