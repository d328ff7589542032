"""The GPUs and network controllers of a machine, with the names that findings use."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from busbw.check.machine import Machine
from busbw.host.pci import AMD, Device, Link, at, links, read_devices, read_link, shared

NONE = "no NVIDIA GPU and no network controller on PCI"
CONFIG = "/sys/bus/pci/devices/*/config"
BRIDGES = "the target of /sys/bus/pci/devices/*"


@dataclass(frozen=True, slots=True)
class Part:
    """A device with its name: GPU 2, mlx5_0, eth0, or its address if it has none."""

    name: str
    device: Device

    @property
    def path(self) -> str:
        """Its directory."""
        return at(self.device.bdf)


def gpus(machine: Machine) -> list[Part]:
    """NVIDIA GPUs."""
    names = {gpu.bus_id: f"GPU {gpu.index}" for gpu in machine.host.gpus}
    return [Part(names.get(bdf, bdf), device) for bdf, device in read_devices(machine).items() if device.gpu]


def nics(machine: Machine) -> list[Part]:
    """RDMA devices that are no virtual functions of this machine; without RDMA all network controllers."""
    rdma = {port.bdf: port.device for port in machine.ports}
    real = {bdf: device for bdf, device in read_devices(machine).items() if not device.virtual}
    found = [Part(rdma[bdf], device) for bdf, device in real.items() if bdf in rdma]
    return found or [Part(_interface(machine, bdf), device) for bdf, device in real.items() if device.network]


def rdma_nics(machine: Machine) -> list[Part]:
    """RDMA devices alone."""
    names = {port.device for port in machine.ports}
    return [nic for nic in nics(machine) if nic.name in names]


def _interface(machine: Machine, bdf: str) -> str:
    return next(iter(machine.names(f"{at(bdf)}/net")), bdf)


def slots(parts: list[Part]) -> list[Part]:
    """One part of each slot: functions of one slot share its link."""
    return list({part.device.slot: part for part in reversed(parts)}.values())[::-1]


@dataclass(frozen=True, slots=True)
class Step:
    """A link on the way from a part to the root port. `upper` and `above` are None where the upper end is not known."""

    part: Part
    lower: str
    below: Link
    upper: str | None
    above: Link | None

    @property
    def last(self) -> bool:
        """Whether it is the part's own link, and not one of a switch above it."""
        return self.lower == self.part.device.bdf

    @property
    def name(self) -> str:
        """The lower end for a message."""
        return "it" if self.last else f"the switch above it ({self.lower})"


def ways(machine: Machine) -> Iterator[tuple[Part, list[Step]]]:
    """For each slot of GPUs and network controllers the links up to the root port that no part before it has."""
    seen: set[str] = set()
    for part in slots(gpus(machine) + nics(machine)):
        fresh = [(upper, lower) for upper, lower in links(part.device) if lower not in seen]
        seen |= {lower for _, lower in fresh}
        yield (
            part,
            [
                Step(part, lower, read_link(machine, lower), upper or None, read_link(machine, upper) if upper else None)
                for upper, lower in fresh
            ],
        )


def nearest(gpu: Part, others: list[Part], machine: Machine) -> Part | None:
    """The network controller with the most bridges in common with the GPU, of these one on its NUMA node; None if there is none."""
    node = machine.text(f"{gpu.path}/numa_node")
    return max(others, key=lambda nic: (shared(gpu.device, nic.device), machine.text(f"{nic.path}/numa_node") == node), default=None)


def amd_host(machine: Machine, part: Part) -> bool:
    """Whether the part's root port is AMD's."""
    return bool(part.device.above) and machine.text(f"{at((part.device.above or ('',))[0])}/vendor") == AMD


def bridge_names(parts: list[Part]) -> list[str]:
    """Addresses of all bridges above the parts."""
    return sorted({bridge for part in parts for bridge in part.device.above or ()})


def group(machine: Machine, part: Part) -> str | None:
    """The IOMMU group of a part; None without one."""
    target = machine.link(f"{part.path}/iommu_group")
    return Path(target).name if target else None
