"""The inventory of a node, for learning and comparing. A value that cannot be read is None."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import gbits, own_ports
from busbw.check.nvlink.fabric import nominal_rate
from busbw.core.topology import Gpu as TopologyGpu
from busbw.host.cpu import count_list, meminfo
from busbw.host.gpu import load
from busbw.host.gpu_health import GpuHealth
from busbw.host.interfaces import Interface
from busbw.host.nic import RDMA
from busbw.host.nvml_health import read_health
from busbw.host.pci import PcieLink, read_devices, read_link
from busbw.host.settings import cpu_set, named_counts

# GT/s by PCIe generation, for GPUs whose link only NVML shows.
GT_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
BUSY_PERCENT = 50  # percent of NVML's sample period: an idle GPU lowers the speed of its link
NVME_CLASS = "0x0108"  # PCI class of NVMe controllers
CPU, NODE = "/sys/devices/system/cpu", "/sys/devices/system/node"
OS_RELEASE = "/etc/os-release"
_GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryGpu:
    """One GPU that NVML lists. `error` says why NVML cannot read it."""

    label: str
    address: str
    error: str = ""
    model: str | None = None
    memory_bytes: int | None = None
    vbios: str | None = None
    serial: str | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    nvlinks: int | None = None
    nvlink_gb_s: float | None = None
    pcie_gt_s: float | None = None
    pcie_width: int | None = None


def gpus(machine: Machine) -> list[InventoryGpu]:
    """All GPUs that NVML lists."""
    health = read_health(machine)
    if health.gpus or not machine.host.gpus:
        return [_of_health(machine, gpu) for gpu in health.gpus]
    # An old snapshot has only the GPUs of the topology.
    return [_of_topology(machine, gpu) for gpu in machine.host.gpus]


def _of_health(machine: Machine, gpu: GpuHealth) -> InventoryGpu:
    if gpu.error:
        return InventoryGpu(label=gpu.label, address=gpu.bus_id, error=gpu.error)
    rates = [nominal_rate(gpu, link) for link in gpu.active]
    known = [rate / 1e9 for rate in rates if rate]
    speed, width = gpu_link(machine, gpu.bus_id, gpu.index)
    return InventoryGpu(
        label=gpu.label,
        address=gpu.bus_id,
        model=gpu.name,
        memory_bytes=gpu.memory_bytes,
        vbios=gpu.vbios,
        serial=gpu.serial,
        persistence=gpu.persistence,
        ecc=gpu.ecc,
        mig=gpu.mig,
        nvlinks=None if gpu.links is None else len(gpu.active),
        nvlink_gb_s=min(known) if known and len(known) == len(rates) else None,
        pcie_gt_s=speed,
        pcie_width=width,
    )


def _of_topology(machine: Machine, gpu: TopologyGpu) -> InventoryGpu:
    speed, width = gpu_link(machine, gpu.bus_id, gpu.index)
    return InventoryGpu(
        label=f"GPU {gpu.index}",
        address=gpu.bus_id,
        model=gpu.name,
        memory_bytes=gpu.memory_bytes or None,
        nvlinks=gpu.nvlink,
        nvlink_gb_s=gpu.nvlink_rate / 1e9 if gpu.nvlink_rate else None,
        pcie_gt_s=speed,
        pcie_width=width,
    )


def gpu_link(machine: Machine, bdf: str, index: int) -> tuple[float | None, int | None]:
    """GT/s and lanes of a GPU's link.

    An idle GPU lowers the speed: then it is the highest that both ends support.
    """
    link = read_link(machine, bdf)
    if link.width is None and link.speed is None:
        for gpu in machine.host.gpus:
            if gpu.index == index:
                return GT_S.get(gpu.pcie_gen_max or 0), gpu.pcie_width
        return None, None
    busy = load(machine).get(bdf, 0) >= BUSY_PERCENT
    return link.speed if busy else _possible(machine, bdf, link), link.width


def _possible(machine: Machine, bdf: str, link: PcieLink) -> float | None:
    device = read_devices(machine).get(bdf)
    above = read_link(machine, device.above[-1]).speed_max if device and device.above else None
    return min(
        (speed for speed in (link.speed_max, above) if speed is not None), default=link.speed
    )


def ports(machine: Machine) -> list[RdmaPort]:
    """The RDMA ports that the node uses itself."""
    return list(own_ports(machine))


def port_rate(machine: Machine, port: RdmaPort) -> float | None:
    """Gbit/s of an active port. The rate of one that is down means nothing."""
    return (gbits(machine, port) or None) if port.active else None


def port_state(machine: Machine, port: RdmaPort) -> str | None:
    """`ACTIVE`, `INIT` or `DOWN`; None if it cannot be read."""
    text = machine.text(f"{port.path}/state")
    return text.rpartition(" ")[2] if text else None


def firmware(machine: Machine, port: RdmaPort) -> str | None:
    """The version of the firmware of the port's device; None if it cannot be read."""
    return machine.text(f"{RDMA}/{port.device}/fw_ver") or None


def port_link(machine: Machine, port: RdmaPort) -> PcieLink:
    return read_link(machine, port.bdf) if port.bdf else PcieLink(None, None, None, None)


def interfaces(machine: Machine) -> list[Interface]:
    """Hardware interfaces and bonds that are no part of an RDMA port or another interface."""
    named = {port.netdev for port in machine.ports}
    independent = [
        interface
        for interface in machine.interfaces.values()
        if not interface.rdma and not interface.master
    ]
    return [
        interface for interface in independent if interface.physical and interface.name not in named
    ]


def interface_rate(interface: Interface) -> float | None:
    """Gbit/s of an interface; None if it is down or has no rate."""
    return interface.rate / _GBIT if interface.rate and interface.up else None


def sockets(machine: Machine) -> int | None:
    """The number of CPU packages; None if a CPU does not show which others share its package."""
    waiting, count = cpu_set(machine.text(f"{CPU}/online") or ""), 0
    while waiting:
        shared = cpu_set(machine.text(f"{CPU}/cpu{min(waiting)}/topology/core_siblings_list") or "")
        if min(waiting) not in shared:
            return None
        waiting -= shared
        count += 1
    return count or None


def online(machine: Machine) -> int | None:
    """The number of CPUs that are online; None if it cannot be read."""
    return count_list(machine.text(f"{CPU}/online") or "") or None


def numa_nodes(machine: Machine) -> int | None:
    """The number of NUMA nodes that are online; None if it cannot be read."""
    return count_list(machine.text(f"{NODE}/online") or "") or None


def nvme(machine: Machine) -> list[str] | None:
    """PCI addresses of NVMe controllers; None if PCI cannot be read."""
    devices = read_devices(machine)
    if not devices:
        return None
    return [bdf for bdf, device in devices.items() if device.kind.startswith(NVME_CLASS)]


def dead_nvme(machine: Machine) -> Iterator[tuple[str, str]]:
    """NVMe controllers that the kernel does not call live, each with its state."""
    for name in machine.names("/sys/class/nvme"):
        state = machine.text(f"/sys/class/nvme/{name}/state")
        if state and state != "live":
            yield name, state


def os_release(machine: Machine) -> dict[str, str]:
    """ID, VERSION_ID and other values of /etc/os-release."""
    pairs = (line.partition("=") for line in (machine.text(OS_RELEASE) or "").splitlines())
    return {name: value.strip("\"'") for name, equals, value in pairs if equals}


def version(text: str) -> tuple[int, ...]:
    """The numbers at the start of a version: (5, 15, 0, 105) of 5.15.0-105-generic."""
    match = re.match(r"\d+(?:[.-]\d+)*", text)
    return tuple(int(number) for number in re.split(r"[.-]", match[0])) if match else ()


def has_sysfs(machine: Machine) -> bool:
    """Whether /sys/class has anything, so that what it does not list is absent."""
    return bool(machine.names("/sys/class"))


def ram_bytes(machine: Machine) -> int | None:
    """Bytes of memory that the kernel manages; None if it cannot be read."""
    return meminfo(machine, "MemTotal") or None


def hugepages(machine: Machine) -> int | None:
    """Number of huge pages of the default size, free or not."""
    return named_counts((machine.text("/proc/meminfo") or "").replace(":", "")).get(
        "HugePages_Total"
    )


def driver(machine: Machine) -> str | None:
    """The version of the NVIDIA driver, as its library reports it."""
    return read_health(machine).driver or machine.host.driver or None


def kernel(machine: Machine) -> str | None:
    return machine.text("/proc/sys/kernel/osrelease") or None
