"""The system that a result or this machine was measured on, as far as it was recorded."""

from collections import Counter
from dataclasses import replace
from math import ceil

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.result import Outcome, Result
from busbw.core.topology import Host
from busbw.model.fabric import NoFabric, ports_in_use
from busbw.model.gpu_hosts import gpu_hosts
from busbw.model.hardware import gpu_word, is_card
from busbw.model.systems import System, of_device, of_gpus
from busbw.model.usable_hardware import used

EXAMPLE = "h100x8"
ON_CPUS = ("mpi", "torch", "nccl")  # engines whose ranks without a bus are on CPUs
DESCRIBE = f"describe the system, like --system {EXAMPLE} --nics 8x400G, or give --topo FILE"


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


def shape(result: Result, domain: int = 0) -> tuple[int, int]:
    """NVLink domains, and ranks on each: hosts, or racks whose hosts NVLink joins (NCCL's MNNVL).

    More ranks than a domain has are taken to fill the fewest domains evenly, as 32 hosts of 4 fill
    two of 64. `domain` is how many of its GPUs take part, where that is known. UsageError where
    the file does not say, or hosts differ.
    """
    hosts, per_host = on_hosts(result)
    row = gpu_hosts().get(gpu_word(result.world.devices[0].name))
    if row is None or not row.racks or result.environment.get("NCCL_MNNVL_ENABLE") == "0":
        return hosts, per_host
    ranks = hosts * per_host
    domains = ceil(ranks / (domain or row.most))
    return (domains, ranks // domains) if hosts % domains == 0 else (hosts, per_host)


def on_hosts(result: Result) -> tuple[int, int]:
    """Hosts, and ranks on each; UsageError where the file does not say, or hosts differ."""
    devices = result.world.devices
    ranks = Counter(device.host for device in devices if device.group == devices[0].group)
    if not ranks:
        raise UsageError(
            "the file names no ranks", "give hosts and GPUs, like --nodes 1 --system h100x8"
        )
    if len(set(ranks.values())) > 1:
        raise UsageError(
            f"the ranks per host differ: {', '.join(map(str, ranks.values()))}",
            "measure with as many on every host",
        )
    return len(ranks), next(iter(ranks.values()))


def cpus_of(result: Outcome) -> str:
    """`AMD EPYC`: the CPUs on which the ranks ran; empty if they ran on GPUs, or if that is not
    known.
    """
    names = [device.name for device in result.world.devices if not device.bus]
    return next(iter(names), "") if result.library.engine in ON_CPUS else ""


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
    _, per_host = shape(result)
    system = of_device(name, per_host) if name else None
    if system is None and is_card(name):
        return f"{name}: the file does not say which of these cards NVLink joins"
    if system is None:
        return f"{name or 'its device'} is not in the table of GPUs"
    return replace(system, name="")
