"""The NICs of a topology file: the rates of their ports, and of the PCIe slots that these share."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from busbw.model.fabric import gb
from busbw.model.systems import PCIE_WIRE, System

MEGABIT = 1e6 / 8
MAX_MEGABITS = 10_000_000  # no NIC has 10 Tbit/s
NAMED = 4  # ports of a note by name; others are counted


@dataclass(frozen=True, slots=True)
class Slot:
    """A PCIe slot. `stated` says whether the file has its rate; otherwise 16 lanes of Gen4 are
    assumed.
    """

    bus: str = ""
    gen: int = 4
    lanes: int = 16
    stated: bool = False

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return PCIE_WIRE[self.gen] * self.lanes / 16


@dataclass(frozen=True, slots=True)
class TopoPort:
    """A port of a NIC. `megabits` is its rate in Mbit/s, as the file has it."""

    name: str
    megabits: int
    slot: Slot

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.megabits * MEGABIT


def with_ports(system: System, ports: Sequence[TopoPort], *, slots_count: bool) -> System:
    """The system with these NICs. Without `slots_count` their slots do not limit them.

    The system has no NICs, and the reason, if their rates differ or are none that a NIC has: then
    only --nics can say which a job uses.
    """
    unknown = _why_unknown(ports)
    if unknown or not ports:
        return replace(system, nics_unknown=unknown)
    sharing = Counter(port.slot for port in ports)
    shares = {
        port: port.slot.rate / sharing[port.slot]
        for port in ports
        if slots_count and port.slot.stated
    }
    slow = [port for port, share in shares.items() if share < port.rate]
    if not slow:
        return replace(system, nics=len(ports), nic=ports[0].rate)
    slowest = min(slow, key=lambda port: shares[port])
    return replace(
        system,
        nics=len(ports),
        nic=shares[slowest],
        nic_over_pcie=True,
        nic_notes=(_note(slowest, shares[slowest], slow, len(ports)),),
    )


def _why_unknown(ports: Sequence[TopoPort]) -> str:
    for port in ports:
        if port.megabits > MAX_MEGABITS:
            terabits = port.megabits / 1e6
            return f"the file gives NIC {port.name[:20]} {terabits:g} Tbit/s, which no NIC has"
    counts = Counter(port.megabits for port in ports)
    if len(counts) < 2:
        return ""
    listed = ", ".join(f"{count} x {rate / 1000:g}" for rate, count in counts.most_common())
    return f"the rates of its NICs differ: {listed} Gbit/s"


def _note(slowest: TopoPort, share: float, slow: Sequence[TopoPort], ports: int) -> str:
    """Which ports have the slowest slots, and that the others count like these."""
    same = [port for port in slow if _kind(port) == _kind(slowest)]
    named = ", ".join(port.name[:20] for port in same[:NAMED])
    more = f" and {len(same) - NAMED} more" if len(same) > NAMED else ""
    limited = "every NIC port" if len(same) == ports else named + more
    pcie = f"PCIe {slowest.slot.gen} x{slowest.slot.lanes}"
    text = f"{pcie} limits {limited} to {gb(share)} of {gb(slowest.rate)} GB/s"
    if len(same) == ports:
        return text
    return f"{text}; all NICs count as that slow, since a collective loads them alike"


def _kind(port: TopoPort) -> tuple[int, int]:
    return port.slot.gen, port.slot.lanes
