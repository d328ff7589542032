"""The system that a result or this machine was measured on, as far as it was recorded.

Which network ports of each host carried the data of a run, so that findings name no other.
"""

from collections import Counter, defaultdict
from dataclasses import replace

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.result import Result
from busbw.core.telemetry import TCP, USED
from busbw.core.topology import Host
from busbw.model.fabric import NoFabric, ports_in_use
from busbw.model.systems import System, of_device, of_generation, of_gpus
from busbw.model.usable_hardware import used

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
