"""The hardware that a run can use: the GPUs of its ranks, and the ports and features that its
NCCL settings allow.

The system that a result or this machine was measured on, as far as it was recorded.

Which network ports of each host carried the data of a run, so that findings name no other.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from busbw.core.alltoallv import Traffic
from busbw.core.collectives import collective as collective_row
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.result import Device, Ideal, Result, World
from busbw.core.telemetry import TCP, USED
from busbw.core.topology import Host, Nic, Topology
from busbw.model.bounds import Features, bounds, endpoint
from busbw.model.fabric import Fabric, NoFabric, fabric, ports_in_use
from busbw.model.systems import System, of_device, of_generation, of_gpus


@dataclass(frozen=True, slots=True)
class Used:
    """The hosts in order of their first rank, with only the GPUs and ports in use, and what
    `bounds` needs to know of them.
    """

    hosts: list[Host]
    fabric: Fabric
    features: Features


def used(
    world: World, topology: Topology, environment: Mapping[str, str], traffic: Traffic | None = None
) -> Used | NoFabric:
    """The part of `topology` that `world` uses with NCCL's settings in `environment`, and for what
    `traffic`, or why it is unknown.

    If only CUDA could tell whether NVLS works, it counts as available unless NCCL_NVLS_ENABLE is 0.
    """
    if world.groups > 1:
        return NoFabric(f"{world.groups} groups of ranks share the links")
    if any(not device.bus for device in world.devices):
        return NoFabric("the ranks run on CPUs")
    by_host: dict[str, list[Device]] = {}
    for device in world.devices:
        by_host.setdefault(device.host, []).append(device)
    hosts = []
    for name, devices in by_host.items():
        host = _host(topology, name)
        if host is None:
            return NoFabric(f"the hardware of host {name} was not read")
        hosts.append(_narrowed(host, devices, environment))
    links = fabric(hosts, [len(devices) for devices in by_host.values()])
    if isinstance(links, NoFabric):
        return links
    capable = all(gpu.nvls is not False for host in hosts for gpu in host.gpus)
    nvls = capable and environment.get("NCCL_NVLS_ENABLE", "").strip() != "0"
    return Used(
        hosts,
        replace(links, traffic=traffic),
        Features(nvls, collnet=environment.get("NCCL_COLLNET_ENABLE", "").strip() == "1"),
    )


def ideals(
    collective: str,
    world: World,
    topology: Topology,
    environment: Mapping[str, str],
    traffic: Traffic | None = None,
) -> tuple[Ideal | None, Ideal | None]:
    """The largest bound and the `endpoint` of a run, for Result.ideal and Result.endpoint_ideal;
    None if unknown.
    """
    row, use = collective_row(collective), used(world, topology, environment, traffic)
    if isinstance(use, NoFabric):
        return None, None
    return max(
        bounds(row, use.fabric, use.features), key=lambda bound: bound.busbw, default=None
    ), endpoint(row, use.fabric)


def _host(topology: Topology, name: str) -> Host | None:
    """The host with that name or short name: processes of one job may report either form."""
    exact = next((host for host in topology.hosts if host.hostname == name), None)
    short = name.partition(".")[0]
    return exact or next(
        (host for host in topology.hosts if host.hostname.partition(".")[0] == short), None
    )


def _narrowed(host: Host, devices: Sequence[Device], environment: Mapping[str, str]) -> Host:
    # a Device.bus has no function number
    prefixes = tuple(f"{device.bus.lower().partition('.')[0]}." for device in devices)
    gpus = [gpu for gpu in host.gpus if gpu.bus_id.startswith(prefixes)]
    return msgspec.structs.replace(
        host, gpus=gpus or host.gpus, nics=nics_left(host.nics, environment)
    )


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


def list_matches(wanted: str, name: str) -> bool:
    """Whether a list in NCCL's syntax matches `name`: prefixes, exact names after `=`, exclusions
    after `^`; an empty list matches all.

    An entry with a port (`mlx5_0:1`) matches only that port.
    """
    wanted = wanted.strip()
    exclude = wanted.startswith("^")
    wanted = wanted.removeprefix("^")
    exact = wanted.startswith("=")
    entries = [entry.strip() for entry in wanted.removeprefix("=").split(",") if entry.strip()]
    return not entries or any(_matches(entry, name, exact) for entry in entries) != exclude


def _matches(entry: str, name: str, exact: bool) -> bool:
    want, _, want_port = entry.partition(":")
    have, _, have_port = name.partition(":")
    if want_port and want_port != (have_port or "1"):
        return False
    return have == want if exact else have.startswith(want)


DESCRIBE = "describe the system, like --system h100x8 --nics 8x400G"


def of_host(host: Host) -> System:
    """The system of this machine; NoMeasurement where its GPUs or their links could not be read."""
    if not host.gpus:
        raise NoMeasurement(
            f"no GPU of host {host.hostname} could be read: {host.gpu_reason or 'it has none'}",
            DESCRIBE,
        )
    kinds = {(gpu.name, gpu.nvlink, gpu.nvlink_rate) for gpu in host.gpus}
    if len(kinds) > 1:
        raise NoMeasurement(
            f"host {host.hostname}: its GPUs or their NVLinks differ:"
            f" {', '.join(sorted({kind[0] for kind in kinds}))}",
            DESCRIBE,
        )
    ports = [nic for nic in ports_in_use(host) if nic.rate]
    nic = min((nic.rate or 0.0 for nic in ports), default=0.0)
    capable = all(gpu.nvls is not False for gpu in host.gpus) and host.gpus[0].sm >= 90
    found = of_gpus(host.gpus[0], len(host.gpus), len(ports), nic, nvls=capable)
    if isinstance(found, str):
        raise NoMeasurement(f"host {host.hostname}: {found}", DESCRIBE)
    return found


def shape(result: Result) -> tuple[int, int]:
    """Hosts, and ranks on each; UsageError where the file does not say, or hosts differ."""
    devices = result.world.devices
    ranks = Counter(device.host for device in devices if device.group == devices[0].group)
    if not ranks:
        raise UsageError(
            "the file names no ranks",
            "give how many there were, like --nodes 2 with --system h100x8",
        )
    if len(set(ranks.values())) > 1:
        raise UsageError(
            f"the ranks per host differ: {', '.join(map(str, ranks.values()))}",
            "measure with as many on every host",
        )
    return len(ranks), next(iter(ranks.values()))


def of_result(result: Result) -> System | str:
    """The system of a result: by its recorded links, else by its device's name, then without NICs.

    Text says what is missing.
    """
    use = used(result.world, result.topology, result.environment)
    if not isinstance(use, NoFabric):
        count = round(use.fabric.nics / use.fabric.rail) if use.fabric.rail else 0
        gpu = use.hosts[0].gpus[0]
        return of_gpus(
            gpu,
            use.fabric.per_host,
            count,
            use.fabric.rail,
            nvls=use.features.nvls and gpu.sm >= 90,
        )
    devices = result.world.devices
    row = of_device(devices[0].name) if devices and devices[0].name else None
    if row is None:
        return (
            f"{devices[0].name or 'its device'} is not in the table of GPUs"
            if devices
            else "the file names no devices"
        )
    _, per_host = shape(result)
    found = of_generation(row, devices[0].name, per_host)
    return replace(found, name="")


TCP_NETWORKS = ("", "Socket", "busbw")  # NCCL's names of networks over TCP; empty is unknown


class UsedPorts:
    """Port use by host, from the traffic of all rows."""

    def __init__(self, result: Result) -> None:
        devices, settings = result.world.devices, result.environment
        only_network = all(
            settings.get(name, "").strip() == "1"
            for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
        )
        self._network = len({device.host for device in devices}) > 1 or (
            len(devices) > 1 and only_network
        )
        self._over_tcp = result.library.network in TCP_NETWORKS
        self._ports = {
            host.hostname: {name for nic in host.nics for name in (nic.name, nic.netdev)}
            for host in result.topology.hosts
        }
        self._bytes: dict[str, Counter[str]] = defaultdict(Counter)
        for change in (change for row in result.rows for change in row.machine or []):
            self._bytes[change.host].update(change.sent)
            self._bytes[change.host].update(change.received)

    def used(self, host: str, subject: str) -> bool:
        """Whether a port, or TCP, may have carried a part of the data; any port may if no
        traffic is known.
        """
        if not self._network or subject == TCP:
            return self._network and self._over_tcp
        ports = self._bytes[host]
        return ports[subject] >= USED * max(ports.values(), default=0)

    def unused(self, host: str, subject: str) -> bool:
        """Whether `subject` is a port or TCP that carried no data; False for all other subjects,
        such as GPUs.
        """
        is_port = (
            subject == TCP or subject in self._ports.get(host, ()) or subject in self._bytes[host]
        )
        return is_port and not self.used(host, subject)
