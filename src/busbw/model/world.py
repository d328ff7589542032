"""From what took part in a run to what bounds it: the GPUs of its ranks, and the ports and features its NCCL settings leave. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from busbw.core.result import Device, Ideal, World
from busbw.core.topology import Host, Nic, Topology
from busbw.model.bounds import endpoint, ideal
from busbw.model.fabric import NoFabric


@dataclass(frozen=True, slots=True)
class Used:
    """The arguments of `bounds` for a run."""

    topology: Topology  # hosts in order of their first rank, with the GPUs and ports in use alone
    ranks_per_host: list[int]
    nvls: bool
    collnet: bool


def used(world: World, topology: Topology, environment: Mapping[str, str]) -> Used | NoFabric:
    """What the ranks of `world` use of `topology` under NCCL's settings in `environment`, or why that is unknown.

    Where only CUDA could tell whether NVLS works, it counts as available unless NCCL_NVLS_ENABLE is 0.
    """
    if world.groups > 1:
        return NoFabric(f"the ranks run in {world.groups} groups at once, which share the links")
    if any(not device.bus for device in world.devices):
        return NoFabric("the ranks do not run on GPUs, and busbw has a model for GPUs alone")
    by_host: dict[str, list[Device]] = {}
    for device in world.devices:
        by_host.setdefault(device.host, []).append(device)
    hosts = []
    for name, devices in by_host.items():
        host = _host(topology, name)
        if host is None:
            return NoFabric(f"the hardware of host {name} was not read")
        hosts.append(_narrowed(host, devices, environment))
    capable = all(gpu.nvls is not False for host in hosts for gpu in host.gpus)
    return Used(
        Topology(hosts),
        [len(devices) for devices in by_host.values()],
        nvls=capable and environment.get("NCCL_NVLS_ENABLE", "").strip() != "0",
        collnet=environment.get("NCCL_COLLNET_ENABLE", "").strip() == "1",
    )


def ideals(collective: str, world: World, topology: Topology, environment: Mapping[str, str]) -> tuple[Ideal | None, Ideal | None]:
    """The `ideal` and the `endpoint` of a run, for Result.ideal and Result.endpoint_ideal; None where unknown."""
    use = used(world, topology, environment)
    if isinstance(use, NoFabric):
        return None, None
    best = ideal(collective, use.topology, use.ranks_per_host, nvls=use.nvls, collnet=use.collnet)
    return best, endpoint(collective, use.topology, use.ranks_per_host)


def _host(topology: Topology, name: str) -> Host | None:
    """The host of that name, or the one of that short name: processes of one job may report either form."""
    exact = next((host for host in topology.hosts if host.hostname == name), None)
    short = name.partition(".")[0]
    return exact or next((host for host in topology.hosts if host.hostname.partition(".")[0] == short), None)


def _narrowed(host: Host, devices: Sequence[Device], environment: Mapping[str, str]) -> Host:
    prefixes = tuple(f"{device.bus.lower().partition('.')[0]}." for device in devices)  # a bus may come without its function
    gpus = [gpu for gpu in host.gpus if gpu.bus_id.startswith(prefixes)]
    return msgspec.structs.replace(host, gpus=gpus or host.gpus, nics=nics_left(host.nics, environment))


def nics_left(nics: Sequence[Nic], environment: Mapping[str, str]) -> list[Nic]:
    """The ports that NCCL_IB_HCA, NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME leave to NCCL's data.

    Over sockets an RDMA port over Ethernet counts as its interface, and an InfiniBand port not at all: IP over it has no known rate.
    """
    rdma = [nic for nic in nics if nic.kind != "ethernet" and not nic.virtual]
    if rdma and environment.get("NCCL_IB_DISABLE", "").strip() != "1":
        hca = environment.get("NCCL_IB_HCA", "")
        return [nic for nic in rdma if list_matches(hca, nic.name)]
    names = environment.get("NCCL_SOCKET_IFNAME", "")
    sockets = [nic for nic in nics if nic.kind in ("ethernet", "roce") and nic.netdev]
    return [msgspec.structs.replace(nic, name=nic.netdev, kind="ethernet") for nic in sockets if list_matches(names, nic.netdev)]


def list_matches(wanted: str, name: str) -> bool:
    """Whether NCCL's list takes `name`: prefixes by default, whole names after `=`, all others after `^`; an empty list takes all.

    A device may carry a port (`mlx5_0:1`), which must then match the name's own.
    """
    wanted = wanted.strip()
    exclude = wanted.startswith("^")
    wanted = wanted.removeprefix("^")
    exact = wanted.startswith("=")
    entries = [entry.strip() for entry in wanted.removeprefix("=").split(",") if entry.strip()]
    if not entries:
        return True
    return any(_matches(entry, name, exact) for entry in entries) != exclude


def _matches(entry: str, name: str, exact: bool) -> bool:
    want, _, want_port = entry.partition(":")
    have, _, have_port = name.partition(":")
    if want_port and want_port != (have_port or "1"):
        return False
    return have == want if exact else have.startswith(want)
