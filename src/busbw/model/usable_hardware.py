"""The hardware that a run can use, and the hardware that it used.

`used` finds the GPUs of the ranks, and the ports and features that the run's NCCL settings allow.

`of_host` and `of_result` make the System of this machine or of a result, as far as it was recorded.

`UsedPorts` tells which network ports of each host carried the data of a run, so that findings name
no other.
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
    `bounds` needs: their fabric and features.
    """

    hosts: list[Host]
    fabric: Fabric
    features: Features


def used(
    world: World, topology: Topology, environment: Mapping[str, str], traffic: Traffic | None = None
) -> Used | NoFabric:
    """The part of `topology` that `world` uses with NCCL's settings in `environment`, or why it is
    unknown.

    `traffic` is what an alltoallv moves; it becomes part of the fabric. If only CUDA could tell
    whether NVLS works, it counts as available unless NCCL_NVLS_ENABLE is 0.
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
        hosts.append(_narrow(host, devices, environment))
    links = fabric(hosts, [len(devices) for devices in by_host.values()])
    if isinstance(links, NoFabric):
        return links
    capable = all(gpu.nvls is not False for host in hosts for gpu in host.gpus)
    nvls = capable and environment.get("NCCL_NVLS_ENABLE", "").strip() != "0"
    collnet = environment.get("NCCL_COLLNET_ENABLE", "").strip() == "1"
    return Used(hosts, replace(links, traffic=traffic), Features(nvls, collnet=collnet))


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
    known = bounds(row, use.fabric, use.features)
    largest = max(known, key=lambda bound: bound.busbw, default=None)
    return largest, endpoint(row, use.fabric)


def _host(topology: Topology, name: str) -> Host | None:
    """The host with that name or short name: processes of one job may report either form."""
    short = name.partition(".")[0]
    named = [host for host in topology.hosts if host.hostname == name]
    named += [host for host in topology.hosts if host.hostname.partition(".")[0] == short]
    return named[0] if named else None


def _narrow(host: Host, devices: Sequence[Device], environment: Mapping[str, str]) -> Host:
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
    system = of_gpus(host.gpus[0], len(host.gpus), len(ports), nic, nvls=capable)
    if isinstance(system, str):
        raise NoMeasurement(f"host {host.hostname}: {system}", DESCRIBE)
    return system


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

    A text says what is missing.
    """
    use = used(result.world, result.topology, result.environment)
    if not isinstance(use, NoFabric):
        rail = use.fabric.rail
        count = round(use.fabric.nics / rail) if rail else 0
        gpu = use.hosts[0].gpus[0]
        nvls = use.features.nvls and gpu.sm >= 90
        return of_gpus(gpu, use.fabric.per_host, count, rail, nvls=nvls)
    if not result.world.devices:
        return "the file names no devices"
    name = result.world.devices[0].name
    row = of_device(name) if name else None
    if row is None:
        return f"{name or 'its device'} is not in the table of GPUs"
    _, per_host = shape(result)
    return replace(of_generation(row, name, per_host), name="")


TCP_NETWORKS = ("", "Socket", "busbw")  # NCCL's names of networks over TCP; empty is unknown


class UsedPorts:
    """Port use by host, from the traffic of all rows."""

    def __init__(self, result: Result) -> None:
        devices, settings = result.world.devices, result.environment
        only_network = all(
            settings.get(name, "").strip() == "1"
            for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
        )
        several_hosts = len({device.host for device in devices}) > 1
        self._network = several_hosts or (len(devices) > 1 and only_network)
        self._over_tcp = result.library.network in TCP_NETWORKS
        self._ports: dict[str, set[str]] = {}
        for host in result.topology.hosts:
            names = [nic.name for nic in host.nics] + [nic.netdev for nic in host.nics]
            self._ports[host.hostname] = set(names)
        self._bytes: dict[str, Counter[str]] = defaultdict(Counter)
        for row in result.rows:
            for change in row.machine or []:
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
