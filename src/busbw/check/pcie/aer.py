"""Error counts of the devices and bridges between GPUs, network controllers and the CPU."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from busbw.check.machine import Machine
from busbw.check.parts import Part, gpus, nics, slots
from busbw.host.pci import at, errors
from busbw.host.source import Reading


@dataclass(frozen=True, slots=True)
class Counts:
    """Errors that a device or bridge reported since boot."""

    part: Part
    bdf: str
    path: str
    errors: dict[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.errors.values())

    @property
    def text(self) -> str:
        """`Bad TLP 3, Replay Timer Timeout 1`."""
        return ", ".join(f"{name} {count}" for name, count in self.errors.items() if count) or "0"


@dataclass(frozen=True)
class Errors:
    """What was read; `unread` is a file that could not be read, if none could."""

    parts: list[Part]
    read: list[Counts] = field(default_factory=list)
    unread: Reading | None = None


def counts(machine: Machine, kind: str) -> Errors:
    """Counts of aer_dev_{kind} of each slot and the bridges above it. Devices without AER have no such file."""
    parts = slots(gpus(machine) + nics(machine))
    found = Errors(parts, list(_read(machine, parts, kind)))
    if found.read or not parts:
        return found
    return Errors(parts, [], machine.read(f"{parts[0].path}/aer_dev_{kind}"))


def _read(machine: Machine, parts: list[Part], kind: str) -> Iterator[Counts]:
    seen: set[str] = set()
    for part in parts:
        for bdf in (part.device.bdf, *reversed(part.device.above or ())):
            path = f"{at(bdf)}/aer_dev_{kind}"
            text = machine.text(path)
            if bdf not in seen and text is not None:
                yield Counts(part, bdf, path, errors(text))
            seen.add(bdf)
