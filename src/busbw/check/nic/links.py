"""What the checks of ports share: the ports to judge, their interfaces, models and counters."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path

from busbw.check.base import Check, check, skipped, unanswered
from busbw.check.machine import Machine, RdmaPort
from busbw.check.rates import Count, with_rises
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow
from busbw.host.bonding import carriers
from busbw.host.ethtool import statistics
from busbw.host.interfaces import NET
from busbw.host.nic import RDMA
from busbw.host.pci import read_devices
from busbw.host.source import once

UPPER_LINK_PREFIX = "upper_"  # sysfs names the interfaces over one by links
# Drivers of the virtual networks of clouds, which show neither cables nor switches.
CLOUD = frozenset({"efa", "erdma", "mana"})
MAX_LOSS_SHARE = 1e-6  # one packet in a million
# Of the fastest port: a port with this share or less is for storage or management
SLOW_PORT_SHARE = 0.5
# Azure's interface above the virtual function of accelerated networking, which carries no RDMA.
SYNTHETIC = "hv_netvsc"
_RATE = re.compile(r"([\d.]+) Gb/sec")


def driver(machine: Machine, port: RdmaPort) -> str:
    """The kernel driver of a port's device; '' if it is not known."""
    return machine.target(f"{RDMA}/{port.device}/device/driver")


def own_ports(machine: Machine) -> tuple[RdmaPort, ...]:
    """Ports that this machine uses itself.

    Excludes virtual functions whose physical function is here, which are for guests and pods, and
    Azure's accelerated networking, which is for TCP.
    """
    real = tuple(
        port
        for port in machine.ports
        if machine.link(f"{RDMA}/{port.device}/device/physfn") is None
    )
    return tuple(port for port in real or machine.ports if not _synthetic(machine, port))


def _synthetic(machine: Machine, port: RdmaPort) -> bool:
    master = master_of(machine, port.netdev)
    return bool(master) and machine.target(f"{NET}/{master}/device/driver") == SYNTHETIC


def cabled(machine: Machine) -> tuple[RdmaPort, ...]:
    """The ports that this machine uses itself, except those of a cloud's virtual network."""
    return tuple(port for port in own_ports(machine) if driver(machine, port) not in CLOUD)


def roce(machine: Machine) -> tuple[RdmaPort, ...]:
    """Cabled ports over Ethernet."""
    return tuple(port for port in cabled(machine) if port.roce)


def gpu_server(machine: Machine) -> bool:
    """Whether this is bare metal with GPUs, whose Ethernet cards should have RDMA.

    Elsewhere they may be for TCP only.
    """
    return not machine.hypervisor and any(device.gpu for device in read_devices(machine).values())


def gbits(machine: Machine, port: RdmaPort) -> float:
    """Rate of a port in Gbit/s; 0 if it cannot be read."""
    match = _RATE.match(machine.text(f"{port.path}/rate") or "")
    return float(match.group(1)) if match else 0.0


def fabric(machine: Machine) -> tuple[RdmaPort, ...]:
    """The active RoCE ports that collectives use.

    Excludes ports of a different model than the fastest active port (RoCE or InfiniBand) with at
    most half its rate.
    """
    active = [port for port in cabled(machine) if port.active]
    fastest = max((gbits(machine, port) for port in active), default=0.0)
    of_fastest_model: set[str] = set()
    for group in by_model(machine, active).values():
        if fastest in {gbits(machine, port) for port in group}:
            of_fastest_model |= {port.name for port in group}
    slow = {port.name for port in active if 0 < gbits(machine, port) <= SLOW_PORT_SHARE * fastest}
    unused = slow - of_fastest_model
    return tuple(port for port in active if port.roce and port.name not in unused)


def no_fabric(machine: Machine) -> str:
    """Why `fabric` is empty."""
    ports = roce(machine)
    if not ports:
        return "no RoCE port"
    slow = ", ".join(port.name for port in ports if port.active)
    if not slow:
        return "no active RoCE port"
    return f"{slow}: at most half the rate of other ports, so for storage or management"


@once
def hardware(machine: Machine, port: RdmaPort) -> tuple[str, ...]:
    """The hardware interfaces of a port.

    Several for a bonded device, none if they are in another namespace.
    """
    names = carriers(machine.interfaces, port.netdev)
    sharing = [
        other
        for other in machine.ports
        if other.netdev and set(carriers(machine.interfaces, other.netdev)) & set(names)
    ]
    if len(sharing) < 2:
        return names
    of_device = set(machine.names(f"{RDMA}/{port.device}/device/net"))
    return tuple(name for name in names if name == port.netdev or name in of_device)


def holder(machine: Machine, port: RdmaPort) -> str:
    """The interface that has the port's address: its own, or its bond or bridge."""
    return master_of(machine, port.netdev) or port.netdev


def master_of(machine: Machine, netdev: str) -> str:
    """The bond, team or bridge that an interface belongs to; '' if there is none."""
    interface = machine.interfaces.get(netdev)
    bond = interface.master if interface else ""
    return bond or (machine.target(f"{NET}/{netdev}/master") if netdev else "")


def uppers(machine: Machine, netdev: str) -> tuple[str, ...]:
    """Interfaces over this one, such as VLANs, bonds and bridges, each after the one below it."""
    names: dict[str, None] = {}
    waiting = [netdev]
    while waiting:
        below = waiting.pop(0)
        above = [
            name.removeprefix(UPPER_LINK_PREFIX)
            for name in machine.names(f"{NET}/{below}")
            if name.startswith(UPPER_LINK_PREFIX)
        ]
        above_it = [
            name for name in (*above, master_of(machine, below)) if name and name not in names
        ]
        names |= dict.fromkeys(above_it)
        waiting += above_it
    return tuple(names)


def tagged(machine: Machine, netdev: str) -> bool:
    """Whether the interface has a VLAN, whose packets carry a priority tag."""
    return any(
        "DEVTYPE=vlan" in (machine.text(f"{NET}/{name}/uevent") or "")
        for name in uppers(machine, netdev)
    )


def by_model(machine: Machine, ports: Sequence[RdmaPort]) -> dict[str, list[RdmaPort]]:
    """Ports by the part number of their card, or else its type; ports with neither are omitted."""
    by_kind: dict[str, list[RdmaPort]] = {}
    for port in ports:
        base = f"{RDMA}/{port.device}"
        kind = machine.text(f"{base}/board_id") or machine.text(f"{base}/hca_type")
        if kind:
            by_kind.setdefault(kind, []).append(port)
    return by_kind


def counts(
    machine: Machine, port: RdmaPort, files: Sequence[str], pattern: str
) -> list[Count] | str:
    """Counters of a port, from its sysfs files and the statistics of its interfaces.

    A text says why there are none.
    """
    counters, reason = _counters(machine, port, files, pattern)
    if counters and machine.earlier:
        counters = with_rises(counters, _counters(machine.earlier, port, files, pattern)[0])
    interface = port.netdev or "no interface here"
    return counters or reason or f"{interface}: its driver does not have this counter"


def _counters(
    machine: Machine, port: RdmaPort, files: Sequence[str], pattern: str
) -> tuple[list[Count], str]:
    counters, reason = [], ""
    for name in files:
        reading = machine.read(f"{port.path}/{name}")
        if (reading.text or "").isdecimal():
            counters.append(Count(Path(name).name, int(reading.text or 0), f"{port.path}/{name}"))
        else:
            reason = reading.reason
    for netdev in hardware(machine, port) if pattern else ():
        values = statistics(machine, netdev)
        if isinstance(values, str):
            reason = values
            continue
        matching = {name: value for name, value in values.items() if re.fullmatch(pattern, name)}
        counters += [
            Count(name, value, f"ethtool -S {netdev}: {name}", netdev)
            for name, value in matching.items()
        ]
    return counters, reason


def per_port(
    row: CheckRow, files: Sequence[str], statistics: str, *, ethernet: bool = False
) -> Callable[[Callable[[Machine, RdmaPort, list[Count]], Finding]], Check]:
    """Makes a function that judges the counters of a port the check of `row`; see `each_port`."""

    def register(judge: Callable[[Machine, RdmaPort, list[Count]], Finding]) -> Check:
        @check(row)
        @wraps(judge)
        def judge_all(machine: Machine) -> Iterator[Finding]:
            def judge_port(port: RdmaPort, counters: list[Count]) -> Finding:
                return judge(machine, port, counters)

            return each_port(machine, files, statistics, judge_port, ethernet=ethernet)

        return judge_all

    return register


def each_port(
    machine: Machine,
    files: Sequence[str],
    pattern: str,
    judge: Callable[[RdmaPort, list[Count]], Finding],
    *,
    ethernet: bool = False,
) -> Iterator[Finding]:
    """One finding for each cabled port from its counters.

    Skip without ports, unknown if its counters cannot be read.
    """
    ports = roce(machine) if ethernet else cabled(machine)
    if not ports:
        yield skipped("no RoCE port" if ethernet else "no RDMA port with a cable")
    for port in ports:
        counters = counts(machine, port, files, pattern)
        if isinstance(counters, str):
            yield unanswered(port.name, f"the counters cannot be read: {counters}", counters)
        else:
            yield judge(port, counters)


def total(counters: Sequence[Count], pattern: str) -> int:
    """Sum of the counters with such names."""
    return sum(count.value for count in counters if re.fullmatch(pattern, count.name))


def counter_evidence(
    counters: Sequence[Count], pattern: str = ".*", expected: str = "0"
) -> tuple[Evidence, ...]:
    """The nonzero counters with such names; if all are 0, only the first."""
    chosen = [count for count in counters if re.fullmatch(pattern, count.name)]
    nonzero = [count for count in chosen if count.value]
    return tuple(Evidence(count.where, count.text, expected) for count in nonzero or chosen[:1])
