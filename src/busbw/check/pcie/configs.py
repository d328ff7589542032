"""Configuration spaces of several devices, and the findings if they cannot be read."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from busbw.check.base import broken, unanswered
from busbw.check.machine import Machine
from busbw.check.overall import AS_ROOT
from busbw.check.types import Found
from busbw.host.pci_config import Config, read_config
from busbw.host.source import Reading

EXPRESS_READ, EXTENDED_READ = "PCI Express capability", "extended capabilities"


@dataclass
class Configs:
    """What could be read by address, and the reasons for the rest. `root`: the reads were made as root."""

    root: bool
    read: dict[str, Config] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def unread(self, subject: str = "") -> list[Found]:
        """One unknown finding for all that could not be read."""
        if not self.reasons:
            return []
        more = f" (and {len(self.reasons) - 1} more)" if len(self.reasons) > 1 else ""
        first = next((reason for reason in self.reasons if broken(Reading(None, reason))), self.reasons[0])
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
            configs.reasons.append(f"the configuration space of {bdf} shows no {EXTENDED_READ if extended else EXPRESS_READ}")
        else:
            configs.read[bdf] = config
    return configs
