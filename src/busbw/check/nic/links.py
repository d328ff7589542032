"""What checks of ports share: the hardware interfaces behind a port, ports of the same kind, counters."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbw.check.base import skipped, unknown
from busbw.check.machine import Machine, Port
from busbw.core.checking import Evidence, Found
from busbw.host.bonding import carriers
from busbw.host.ethtool import statistics
from busbw.host.nic import RDMA

CLOUD = frozenset({"efa", "erdma", "mana"})  # devices of a cloud's virtual network: their hosts show neither cables nor switches
LOSS = 1e-6  # one packet in a million


@dataclass(frozen=True, slots=True)
class Count:
    """One counter since the driver was loaded. `netdev` is '' for counters of the RDMA port itself."""

    name: str
    value: int
    where: str
    netdev: str = ""


def driver(machine: Machine, port: Port) -> str:
    """The kernel driver of a port's device; '' if it is not known."""
    return Path(machine.link(f"{RDMA}/{port.device}/device/driver") or "").name


def cabled(machine: Machine) -> tuple[Port, ...]:
    """Ports with a cable, as far as this machine can tell: all but those of a cloud's virtual network."""
    return tuple(port for port in machine.ports if driver(machine, port) not in CLOUD)


def roce(machine: Machine) -> tuple[Port, ...]:
    """Cabled ports over Ethernet."""
    return tuple(port for port in cabled(machine) if port.roce)


def hardware(machine: Machine, port: Port) -> tuple[str, ...]:
    """The hardware interfaces of a port; several for a device that is a whole bond, none where they are in another namespace."""
    names = carriers(machine.interfaces, port.netdev)
    sharing = [other for other in machine.ports if other.netdev and set(carriers(machine.interfaces, other.netdev)) & set(names)]
    if len(sharing) < 2:
        return names
    own = set(machine.names(f"{RDMA}/{port.device}/device/net"))
    return tuple(name for name in names if name == port.netdev or name in own)


def holder(machine: Machine, port: Port) -> str:
    """The interface with the port's address: its bond, or its own."""
    interface = machine.interfaces.get(port.netdev)
    return (interface.master if interface else "") or port.netdev


def kinds(machine: Machine, ports: Sequence[Port]) -> dict[str, list[Port]]:
    """Ports by the part number of their card, or its type where there is none; ports without either are left out."""
    found: dict[str, list[Port]] = {}
    for port in ports:
        base = f"{RDMA}/{port.device}"
        kind = machine.text(f"{base}/board_id") or machine.text(f"{base}/hca_type")
        if kind:
            found.setdefault(kind, []).append(port)
    return found


def hours_up(machine: Machine) -> float | None:
    """Hours since the machine started; None if /proc/uptime cannot be read."""
    text = (machine.text("/proc/uptime") or "").partition(" ")[0]
    return float(text) / 3600 if re.fullmatch(r"\d+(\.\d+)?", text) else None


def counts(machine: Machine, port: Port, files: Sequence[str], pattern: str) -> list[Count] | str:
    """Counters of a port, from files of its directory and statistics of its interfaces; a text says why there are none."""
    found, reason = [], ""
    for name in files:
        reading = machine.read(f"{port.path}/{name}")
        if (reading.text or "").isdigit():
            found.append(Count(Path(name).name, int(reading.text or 0), f"{port.path}/{name}"))
        else:
            reason = reading.reason
    for netdev in hardware(machine, port) if pattern else ():
        values = statistics(machine, netdev)
        if isinstance(values, str):
            reason = values
            continue
        matching = {name: value for name, value in values.items() if re.fullmatch(pattern, name)}
        found += [Count(name, value, f"ethtool -S {netdev}: {name}", netdev) for name, value in matching.items()]
    return found or reason or f"{port.netdev or 'no interface here'}: its driver does not count this"


def each_port(
    machine: Machine, files: Sequence[str], pattern: str, judge: Callable[[Port, list[Count]], Found], *, ethernet: bool = False
) -> Iterator[Found]:
    """The judgement of each cabled port by its counters; skip without such a port, unknown where its counters cannot be read."""
    ports = roce(machine) if ethernet else cabled(machine)
    if not ports:
        yield skipped("no RoCE port" if ethernet else "no RDMA port with a cable")
    for port in ports:
        found = counts(machine, port, files, pattern)
        yield unknown(port.name, f"the counters cannot be read: {found}") if isinstance(found, str) else judge(port, found)


def total(found: Sequence[Count], pattern: str) -> int:
    """Sum of the counters with such names."""
    return sum(count.value for count in found if re.fullmatch(pattern, count.name))


def evidence(found: Sequence[Count], pattern: str = ".*", expected: str = "0") -> tuple[Evidence, ...]:
    """The counters with such names, those above 0 first; without any above 0 the first alone."""
    chosen = [count for count in found if re.fullmatch(pattern, count.name)]
    risen = [count for count in chosen if count.value]
    return tuple(Evidence(count.where, str(count.value), expected) for count in (risen or chosen[:1]))
