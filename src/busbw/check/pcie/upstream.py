"""The links and bridges between devices and the CPU, and their configuration spaces."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from busbw.check.base import broken, skipped, unanswered, unknown, unread
from busbw.check.machine import Machine, Part, gpus, nics, slots
from busbw.check.types import AS_ROOT, Evidence, Finding
from busbw.host.pci import AMD, PcieLink, device_directory, links, read_link, shared
from busbw.host.pci_config import PciConfig, read_config
from busbw.host.source import Reading

CONFIG = "/sys/bus/pci/devices/*/config"
BRIDGES = "the target of /sys/bus/pci/devices/*"
EXPRESS_READ, EXTENDED_READ = "PCI Express capability", "extended capabilities"


@dataclass(frozen=True, slots=True)
class UpstreamLink:
    """A link between a part and the root port.

    `upper` and `above` are None if the upper end is unknown.
    """

    part: Part
    lower: str
    below: PcieLink
    upper: str | None
    above: PcieLink | None

    @property
    def last(self) -> bool:
        """Whether it is the part's own link, not that of a switch above it."""
        return self.lower == self.part.device.bdf

    @property
    def name(self) -> str:
        """The lower end of the link, as a message calls it."""
        return "it" if self.last else f"the switch above it ({self.lower})"


def upstream(machine: Machine) -> Iterator[tuple[Part, list[UpstreamLink]]]:
    """For each slot of GPUs and network controllers: its links up to the root port.

    A link that several parts share is only in the list of the first.
    """
    covered: set[str] = set()
    for part in slots(gpus(machine) + nics(machine)):
        fresh = [(upper, lower) for upper, lower in links(part.device) if lower not in covered]
        covered |= {lower for _, lower in fresh}
        steps = []
        for upper, lower in fresh:
            above = read_link(machine, upper) if upper else None
            steps.append(UpstreamLink(part, lower, read_link(machine, lower), upper or None, above))
        yield part, steps


def nearest(gpu: Part, others: list[Part], machine: Machine) -> Part | None:
    """The network controller that shares the most bridges with the GPU; None if there is none.

    If several share as many, one on the GPU's NUMA node.
    """
    node = machine.text(f"{gpu.path}/numa_node")
    return max(
        others,
        key=lambda nic: (
            shared(gpu.device, nic.device),
            machine.text(f"{nic.path}/numa_node") == node,
        ),
        default=None,
    )


def amd_host(machine: Machine, part: Part) -> bool:
    if not part.device.above:
        return False
    return machine.text(f"{device_directory(part.device.above[0])}/vendor") == AMD


def group(machine: Machine, part: Part) -> str | None:
    """The IOMMU group of a part; None without one."""
    target = machine.link(f"{part.path}/iommu_group")
    return Path(target).name if target else None


def plain(machine: Machine, part: Part) -> bool:
    """Whether it is a plain PCI device, as hypervisors emulate them, which has no link."""
    config = read_config(machine, part.device.bdf)
    return not isinstance(config, str) and config.present and config.control is None


def no_link(machine: Machine, part: Part, quantity: str) -> Finding:
    """The finding on a part that shows nothing about its link."""
    if plain(machine, part):
        return skipped("it is not a PCI Express device", part.name)
    if machine.hypervisor:
        return skipped(f"the hypervisor hides the {quantity} of its link", part.name)
    path = f"{part.path}/current_link_{quantity.partition(' ')[0]}"
    reading = machine.read(path)
    if reading.text is None:
        return unread(part.name, reading, f"the {quantity} of its link")
    shown = Evidence(path, reading.text, f"a {quantity}")
    return unknown(
        part.name,
        f"it does not show the {quantity} of its link, as after a fall off the bus",
        shown,
        fix="lspci -vv; dmesg | tail",
    )


@dataclass
class Configs:
    """The configuration spaces that could be read, by address, and why others could not.

    `root` says that the reads were made as root.
    """

    root: bool
    read: dict[str, PciConfig] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def unread(self, subject: str = "") -> list[Finding]:
        """One unknown finding for all that could not be read."""
        if not self.reasons:
            return []
        more = f" (and {len(self.reasons) - 1} more)" if len(self.reasons) > 1 else ""
        first = next(
            (reason for reason in self.reasons if broken(Reading(None, reason))), self.reasons[0]
        )
        return [unanswered(subject, f"{first}{more}", first, fix="" if self.root else AS_ROOT)]


def express(machine: Machine, addresses: Iterable[str]) -> Configs:
    """Configuration spaces with a readable PCI Express capability."""
    return _configs(machine, addresses, extended=False)


def extended(machine: Machine, addresses: Iterable[str]) -> Configs:
    """Configuration spaces that reach to the extended capabilities."""
    return _configs(machine, addresses, extended=True)


def _configs(machine: Machine, addresses: Iterable[str], *, extended: bool) -> Configs:
    configs = Configs(machine.root)
    for bdf in addresses:
        config = read_config(machine, bdf)
        if isinstance(config, str):
            configs.reasons.append(config)
        elif not (config.extended if extended else config.control is not None):
            configs.reasons.append(
                f"the configuration space of {bdf} shows no"
                f" {EXTENDED_READ if extended else EXPRESS_READ}"
            )
        else:
            configs.read[bdf] = config
    return configs
