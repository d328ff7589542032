"""The hardware that a run can use, and the hardware that it used.

`used` finds the GPUs of the ranks, and the ports and features that the run's NCCL settings allow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from busbw.core.alltoallv import Traffic
from busbw.core.collectives import collective as collective_row
from busbw.core.result import Ideal, RankDevice, World
from busbw.core.topology import Host, Nic, Topology
from busbw.model.bounds import Features, bounds, endpoint
from busbw.model.fabric import ON_CPUS, Fabric, NoFabric, between_cpus, fabric


@dataclass(frozen=True, slots=True)
class UsedHardware:
    """The hosts in order of their first rank, with only the GPUs and ports in use, and what
    `bounds` needs: their fabric and features.
    """

    hosts: list[Host]
    fabric: Fabric
    features: Features


def used(
    world: World, topology: Topology, environment: Mapping[str, str], traffic: Traffic | None = None
) -> UsedHardware | NoFabric:
    """The part of `topology` that `world` uses with NCCL's settings in `environment`, or why it is
    unknown.

    `traffic` is what an alltoallv moves; it becomes part of the fabric. If only CUDA could tell
    whether NVLS works, it counts as available unless NCCL_NVLS_ENABLE is 0.
    """
    if world.groups > 1:
        return NoFabric(f"{world.groups} groups of ranks share the links")
    if any(not device.bus for device in world.devices):
        return NoFabric(ON_CPUS)
    by_host: dict[str, list[RankDevice]] = {}
    for device in world.devices:
        by_host.setdefault(device.host, []).append(device)
    hosts = []
    for name, devices in by_host.items():
        host = _host(topology, name)
        if host is None:
            return NoFabric(f"the hardware of host {name} was not read")
        hosts.append(_narrow(host, devices, environment))
    links = fabric(hosts, [len(devices) for devices in by_host.values()])
    if isinstance(links, NoFabric):
        return links
    capable = all(gpu.nvls is not False for host in hosts for gpu in host.gpus)
    nvls = capable and environment.get("NCCL_NVLS_ENABLE", "").strip() != "0"
    collnet = environment.get("NCCL_COLLNET_ENABLE", "").strip() == "1"
    return UsedHardware(hosts, replace(links, traffic=traffic), Features(nvls, collnet=collnet))


def ideals(
    collective: str,
    world: World,
    topology: Topology,
    environment: Mapping[str, str],
    traffic: Traffic | None = None,
) -> tuple[Ideal | None, Ideal | None]:
    """The largest bound and the `endpoint` of a run, for Result.ideal and Result.endpoint_ideal;
    None if unknown.

    For CPU ranks both are the `endpoint`: which algorithm MPI or Gloo runs is not known.
    """
    row, use = collective_row(collective), used(world, topology, environment, traffic)
    if isinstance(use, NoFabric):
        links = _cpu_links(world, topology)
        if isinstance(links, NoFabric):
            return None, None
        most = endpoint(row, replace(links, traffic=traffic))
        return most, most
    known = bounds(row, use.fabric, use.features)
    largest = max(known, key=lambda bound: bound.busbw, default=None)
    return largest, endpoint(row, use.fabric)


def links_of(world: World, topology: Topology, environment: Mapping[str, str]) -> Fabric | NoFabric:
    """The links of a run, also those of CPU ranks in a lab, or why they are unknown."""
    use = used(world, topology, environment)
    if isinstance(use, UsedHardware):
        return use.fabric
    return _cpu_links(world, topology) if use.reason == ON_CPUS else use


def _cpu_links(world: World, topology: Topology) -> Fabric | NoFabric:
    """The links of CPU ranks, one on each host of a lab."""
    names = [device.host for device in world.devices]
    hosts = [host for host in (_host(topology, name) for name in names) if host is not None]
    on_gpus = any(device.bus for device in world.devices)
    if on_gpus or world.groups > 1 or len(set(names)) < len(names) or len(hosts) < len(names):
        return NoFabric(ON_CPUS)
    return between_cpus(hosts)


def _host(topology: Topology, name: str) -> Host | None:
    """The host with that name or short name: processes of one job may report either form."""
    short = name.partition(".")[0]
    named = [host for host in topology.hosts if host.hostname == name]
    named += [host for host in topology.hosts if host.hostname.partition(".")[0] == short]
    return named[0] if named else None


def _narrow(host: Host, devices: Sequence[RankDevice], environment: Mapping[str, str]) -> Host:
    """The host with only the GPUs of these devices and the ports that NCCL may use."""
    # A Device.bus has no function number.
    prefixes = tuple(f"{device.bus.lower().partition('.')[0]}." for device in devices)
    gpus = [gpu for gpu in host.gpus if gpu.bus_id.startswith(prefixes)]
    nics = nics_left(host.nics, environment)
    return msgspec.structs.replace(host, gpus=gpus or host.gpus, nics=nics)


def nics_left(nics: Sequence[Nic], environment: Mapping[str, str]) -> list[Nic]:
    """The ports that NCCL may use under NCCL_IB_HCA, NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME.

    With sockets, a RoCE port counts as its interface, and InfiniBand ports are left out: the rate
    of IP over InfiniBand is unknown.
    """
    rdma = [nic for nic in nics if nic.kind != "ethernet" and not nic.virtual]
    if rdma and environment.get("NCCL_IB_DISABLE", "").strip() != "1":
        hca = environment.get("NCCL_IB_HCA", "")
        return [nic for nic in rdma if list_matches(hca, nic.name)]
    names = environment.get("NCCL_SOCKET_IFNAME", "")
    sockets = [nic for nic in nics if nic.kind in ("ethernet", "roce") and nic.netdev]
    return [
        msgspec.structs.replace(nic, name=nic.netdev, kind="ethernet")
        for nic in sockets
        if list_matches(names, nic.netdev)
    ]


def list_matches(pattern: str, name: str) -> bool:
    """Whether a list in NCCL's syntax matches `name`: prefixes, exact names after `=`, exclusions
    after `^`; an empty list matches all.

    An entry with a port (`mlx5_0:1`) matches only that port.
    """
    pattern = pattern.strip()
    exclude = pattern.startswith("^")
    pattern = pattern.removeprefix("^")
    exact = pattern.startswith("=")
    entries = [entry.strip() for entry in pattern.removeprefix("=").split(",") if entry.strip()]
    return not entries or any(_matches(entry, name, exact) for entry in entries) != exclude


def _matches(entry: str, name: str, exact: bool) -> bool:
    want, _, want_port = entry.partition(":")
    have, _, have_port = name.partition(":")
    if want_port and want_port != (have_port or "1"):
        return False
    return have == want if exact else have.startswith(want)
