"""NICs by name, and the variables that make NCCL, Gloo and UCX use them alone."""

import ipaddress
import platform
from collections.abc import Sequence

import msgspec

from busbw.core.errors import NoMeasurement
from busbw.host.endpoints import ETHERNET, Endpoint, endpoints
from busbw.host.nic import read_nics
from busbw.host.source import Source


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
    """Its RDMA devices with a known rate; without any, the networks of interfaces with one."""
    rdma = [nic.name for nic in read_nics(source) if nic.kind != ETHERNET and nic.rate]
    return rdma or [port.network for port in endpoints(source) if port.rate]


def select(rails: Sequence[NicChoice], source: Source) -> Selected:
    """The rails on this host. NoMeasurement if it lacks one, or if only some are RDMA devices."""
    ports = endpoints(source)
    devices = {nic.name: nic.rate for nic in read_nics(source) if nic.kind != ETHERNET}
    rdma = [rail for rail in rails if rail.name in devices]
    if rdma and len(rdma) < len(rails):
        raise NoMeasurement(
            f"{rdma[0].name} is an RDMA device, and not all others are",
            "name RDMA devices, or interfaces and networks",
        )
    if rdma:
        found = [NicChoice(rail.name, rail.rate or devices[rail.name]) for rail in rails]
        with_port = [rail.name if ":" in rail.name else f"{rail.name}:1" for rail in rails]
        names = ",".join(rail.name for rail in rails)
        variables = {"NCCL_IB_HCA": f"={names}", "UCX_NET_DEVICES": ",".join(with_port)}
        return Selected(found, variables, rdma=True)
    chosen = [_port(rail.name, ports) for rail in rails]
    found = [
        NicChoice(rail.name, rail.rate or port.rate)
        for rail, port in zip(rails, chosen, strict=True)
    ]
    names = ",".join(port.name for port in chosen)
    variables = {
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": f"={names}",
        "GLOO_SOCKET_IFNAME": names,
        "UCX_NET_DEVICES": names,
    }
    return Selected(found, variables, rdma=False)


def _port(name: str, ports: Sequence[Endpoint]) -> Endpoint:
    """The interface of that name, or the first with an address in that network."""
    try:
        network = ipaddress.ip_network(name, strict=False)
    except ValueError:
        found = [port for port in ports if port.name == name]
    else:
        found = [port for port in ports if ipaddress.ip_address(port.address) in network]
    if not found:
        has = ", ".join(f"{port.name} ({port.network})" for port in ports)
        raise NoMeasurement(
            f"--rail {name}: {platform.node()} has no such RDMA device, interface or network",
            f"it has {has}",
        )
    return found[0]
