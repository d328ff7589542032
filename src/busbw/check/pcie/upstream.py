"""The links and bridges between devices and the CPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from busbw.check.base import skipped, unknown, unread
from busbw.check.machine import Machine
from busbw.check.parts import Part, gpus, nics, slots
from busbw.check.types import Evidence, Found
from busbw.host.pci import AMD, Link, at, links, read_link, shared
from busbw.host.pci_config import read_config

CONFIG = "/sys/bus/pci/devices/*/config"
BRIDGES = "the target of /sys/bus/pci/devices/*"


@dataclass(frozen=True, slots=True)
class Step:
    """A link between a part and the root port. `upper` and `above` are None if the upper end is unknown."""

    part: Part
    lower: str
    below: Link
    upper: str | None
    above: Link | None

    @property
    def last(self) -> bool:
        """Whether it is the part's own link, not that of a switch above it."""
        return self.lower == self.part.device.bdf

    @property
    def name(self) -> str:
        """The lower end for a message."""
        return "it" if self.last else f"the switch above it ({self.lower})"


def upstream(machine: Machine) -> Iterator[tuple[Part, list[Step]]]:
    """For each slot of GPUs and network controllers: the links up to the root port that no earlier part has."""
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
    """The network controller that shares the most bridges with the GPU, preferably on its NUMA node; None if there is none."""
    node = machine.text(f"{gpu.path}/numa_node")
    return max(others, key=lambda nic: (shared(gpu.device, nic.device), machine.text(f"{nic.path}/numa_node") == node), default=None)


def amd_host(machine: Machine, part: Part) -> bool:
    """Whether the part's root port is AMD's."""
    return bool(part.device.above) and machine.text(f"{at((part.device.above or ('',))[0])}/vendor") == AMD


def group(machine: Machine, part: Part) -> str | None:
    """The IOMMU group of a part; None without one."""
    target = machine.link(f"{part.path}/iommu_group")
    return Path(target).name if target else None


def plain(machine: Machine, part: Part) -> bool:
    """Whether it is a plain PCI device, as hypervisors emulate them, which has no link."""
    config = read_config(machine, part.device.bdf)
    return not isinstance(config, str) and config.present and config.control is None


def no_link(machine: Machine, part: Part, what: str) -> Found:
    """Why a part reports nothing about its link."""
    if plain(machine, part):
        return skipped("it is not a PCI Express device", part.name)
    if machine.hypervisor:
        return skipped(f"the hypervisor hides the {what} of its link", part.name)
    path = f"{part.path}/current_link_{what.partition(' ')[0]}"
    reading = machine.read(path)
    if reading.text is None:
        return unread(part.name, reading, f"the {what} of its link")
    shown = Evidence(path, reading.text, f"a {what}")
    return unknown(part.name, f"it does not show the {what} of its link, as after a fall off the bus", shown, fix="lspci -vv; dmesg | tail")
