"""RDMA ports and other interfaces against the groups of [[ports]] and [[interfaces]].

`assign` finds which parts of a node stand for which group of the file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from busbw.check.base import failed, skipped, unknown, warned
from busbw.check.expect import inventory
from busbw.check.expect.base import PartComparison, Target, expectation, hidden
from busbw.check.machine import RdmaPort
from busbw.check.shell_words import word
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.host.interfaces import NET, Interface
from busbw.host.nic import RDMA


class PartGroup(Protocol):
    """A group of parts that are alike."""

    @property
    def count(self) -> int | None:
        """How many parts there must be; None for any number."""

    @property
    def names(self) -> list[str]:
        """The names of the parts; empty for any names."""


class NamedPart(Protocol):
    """A part with a name."""

    @property
    def name(self) -> str:
        """The name of the part."""


Part = TypeVar("Part", bound=NamedPart)
Compare = Callable[[Part, int], PartComparison]  # a part with the group of this number


@dataclass
class FilledGroup(Generic[Part]):
    """A group with the parts that stand for it. `number` counts the groups from 0."""

    number: int
    group: PartGroup
    parts: list[Part]

    @property
    def expected_count(self) -> int | None:
        """How many parts there must be; None for any number."""
        if self.group.count is not None:
            return self.group.count
        return len(self.group.names) or None

    @property
    def full(self) -> bool:
        """Whether it has all parts that there must be."""
        return self.expected_count is not None and len(self.parts) >= self.expected_count

    @property
    def absent(self) -> list[str]:
        """The expected names that no part of the group has."""
        present = {part.name for part in self.parts}
        return [name for name in self.group.names if name not in present]


def assign(
    parts: Sequence[Part], groups: Sequence[PartGroup], compare: "Compare[Part]"
) -> list[FilledGroup[Part]]:
    """The groups with their parts: by name, then each with the group that it is most like.

    A group that has its number of parts gets no more.
    """

    def likeness(part: Part, filled: FilledGroup[Part]) -> tuple[int, int]:
        compared = compare(part, filled.number)
        return -len(compared.good), len(compared.wrong)

    filled = []
    for number, group in enumerate(groups):
        named = [part for part in parts if part.name in group.names]
        filled.append(FilledGroup(number, group, named))
    taken = {part.name for candidate in filled for part in candidate.parts}
    free = [part for part in parts if part.name not in taken]
    pairs = [(likeness(part, candidate), candidate, part) for candidate in filled for part in free]
    for _, candidate, part in sorted(pairs, key=lambda pair: pair[0]):
        if part.name not in taken and not candidate.full:
            candidate.parts.append(part)
            taken.add(part.name)
    return filled


@dataclass(frozen=True, slots=True)
class PartTable:
    """The parts of one table of the file: what one is called, and where the machine lists them.

    `fix` is for a part that is missing.
    """

    table: str
    noun: str
    where: str
    fix: str


def missing(target: Target, filled: FilledGroup[Part], kind: PartTable) -> Iterator[Finding]:
    """A failure for each missing part, by its name where the file has names.

    If no part is missing, a warning for each expected name that none has.
    """
    expected, present = filled.expected_count, len(filled.parts)
    if expected is None or present >= expected:
        yield from _judge_renamed(target, filled, kind)
        return
    text = f"{counted(present, kind.noun)}, expected {expected}"
    evidence = _evidence(target, filled, kind)
    hides = hidden(target.machine)
    if hides:
        yield unknown(
            "", f"{text}: {hides} may hide some", evidence, fix="busbw check --expect, on the host"
        )
        return
    absent = filled.absent[: expected - present]
    for name in absent:
        yield failed(name, f"{name} is missing: {text}", evidence, fix=kind.fix)
    if len(absent) < expected - present:
        yield failed("", text, evidence, fix=kind.fix)


def _judge_renamed(target: Target, filled: FilledGroup[Part], kind: PartTable) -> Iterator[Finding]:
    for name in filled.absent:
        message = f"no {kind.noun} is called {name}, though all {filled.expected_count} are there"
        fix = "if nodes name them differently, delete `names` from the file"
        yield warned(name, message, _evidence(target, filled, kind), fix=fix)


def _evidence(target: Target, filled: FilledGroup[Part], kind: PartTable) -> Evidence:
    key = "names" if filled.group.count is None else "count"
    expected = target.expected(str(filled.expected_count), kind.table, filled.number, key)
    return Evidence(kind.where, ", ".join(part.name for part in filled.parts) or "none", expected)


PORT_TABLE = PartTable(
    table="ports",
    noun="RDMA port",
    where=RDMA,
    fix=(
        "lspci | grep -i -E 'infiniband|ethernet'; if the card is there: dmesg | grep mlx5; if it"
        " is not, drain the node, power it off, and check its seat and power"
    ),
)

PORTS = CheckRow(
    id="BW293",
    name="expect-ports",
    layer=Layer.EXPECTED,
    title=(
        "RDMA ports: number, names, link layer, state, rate and firmware, as an expectations file"
        " has them"
    ),
    right=(
        "what [[ports]] has: in each group count and names, link_layer, state, and at least "
        "rate_gbit_s and firmware_min. With the right number under other names it warns"
    ),
    why=(
        "Checks that compare the ports of a host with each other see nothing if all are gone, or "
        "if all run at half their rate after a change of switch, cable or firmware."
    ),
    fix=(
        "lspci | grep -i -E 'infiniband|ethernet'; rdma link; dmesg | grep mlx5; for {device}:"
        " mlxlink -d {device} -m"
    ),
    stays="a cable, card or switch setting is permanent; ip link set up is not",
    reads=(
        "/sys/class/infiniband/*/ports/*/{link_layer,state,rate}",
        "/sys/class/infiniband/*/fw_ver",
    ),
    sources=("the file given with --expect",),
)


@expectation(PORTS)
def expect_ports(target: Target) -> Iterator[Finding]:
    """For each group the ports that are missing, then each port."""
    if not target.node.ports:
        yield skipped("the file expects no RDMA port")
        return
    if not target.machine.ports and not inventory.has_sysfs(target.machine):
        yield unknown("", "the RDMA devices cannot be read: /sys/class is empty")
        return
    for filled in port_groups(target):
        yield from missing(target, filled, PORT_TABLE)
        for port in filled.parts:
            yield from _compare_port(target, port, filled.number).findings("it is there")


def port_groups(target: Target) -> list[FilledGroup[RdmaPort]]:
    """The groups of the file with the ports that stand for them."""
    return assign(
        inventory.ports(target.machine), target.node.ports, partial(_compare_port, target)
    )


def _compare_port(target: Target, port: RdmaPort, number: int) -> PartComparison:
    machine, group = target.machine, target.node.ports[number]
    compared = PartComparison(
        target,
        port.name,
        f"mlxlink -d {word(port.device)} -m; drain the node; reseat or replace the cable, and check"
        " the switch port",
    )
    state = inventory.port_state(machine, port)

    def key(name: str) -> tuple[str | int, ...]:
        return "ports", number, name

    compared.same(
        "link layer",
        port.layer or None,
        group.link_layer,
        key("link_layer"),
        f"{port.path}/link_layer",
    )
    compared.same("state", state, group.state, key("state"), f"{port.path}/state")
    _compare_firmware(compared, port, number)
    if port.active:
        rate = inventory.port_rate(machine, port)
        compared.least(
            "rate", rate, group.rate_gbit_s, key("rate_gbit_s"), f"{port.path}/rate", unit=gbit
        )
    elif group.state is None and state is not None:  # the rate of a port that is down means nothing
        compared.same(
            "state",
            state,
            "ACTIVE" if group.rate_gbit_s else None,
            key("rate_gbit_s"),
            f"{port.path}/state",
        )
    return compared


def _compare_firmware(compared: PartComparison, port: RdmaPort, number: int) -> None:
    target, key = compared.target, ("ports", number, "firmware_min")
    oldest, where = target.node.ports[number].firmware_min, f"{RDMA}/{port.device}/fw_ver"
    if oldest is None:
        return
    firmware = inventory.firmware(target.machine, port)
    if firmware is None:
        compared.missing("firmware", f"{where} does not show it")
        return
    right = inventory.version(firmware) >= inventory.version(oldest)
    if right:
        compared.good.append(f"firmware {firmware}")
    else:
        compared.wrong.append(f"firmware is {firmware}, older than {oldest}")
        compared.fix = f"mstflint -d {word(port.bdf)} q; update the firmware of {word(port.device)}"
    compared.note(
        Evidence(where, firmware, target.expected(f"{oldest} or newer", *key)), right=right
    )


def gbit(rate: float) -> str:
    """`400 Gbit/s`."""
    return f"{rate:g} Gbit/s"


INTERFACE_TABLE = PartTable(
    table="interfaces",
    noun="interface",
    where=NET,
    fix="lspci | grep -i ethernet; ip link; dmesg | grep -i eth",
)

INTERFACES = CheckRow(
    id="BW294",
    name="expect-interfaces",
    layer=Layer.EXPECTED,
    title=(
        "network interfaces without RDMA: number, names, rate and MTU, as an expectations file has"
        " them"
    ),
    right=(
        "what [[interfaces]] has: in each group count and names, mtu, and at least "
        "rate_gbit_s. With the right number under other names it warns"
    ),
    why=(
        "A launch, storage and the fabric of some clouds use them. A link at a tenth of its rate "
        "slows each of these, and a job only seems slow."
    ),
    fix=(
        "ethtool {netdev}; ip link show {netdev}; drain the node; reseat the cable, and check the"
        " switch port"
    ),
    stays="a cable is permanent; an MTU set with ip link is lost at the next reboot",
    reads=("/sys/class/net/*/{speed,operstate,mtu,device}",),
    sources=("the file given with --expect",),
)


@expectation(INTERFACES)
def expect_interfaces(target: Target) -> Iterator[Finding]:
    """For each group the interfaces that are missing, then each interface."""
    if not target.node.interfaces:
        yield skipped("the file expects no interface without RDMA")
        return
    have = inventory.interfaces(target.machine)
    if not have and not inventory.has_sysfs(target.machine):
        yield unknown("", "the interfaces cannot be read: /sys/class is empty")
        return
    for filled in assign(have, target.node.interfaces, partial(_compare_interface, target)):
        yield from missing(target, filled, INTERFACE_TABLE)
        for interface in filled.parts:
            yield from _compare_interface(target, interface, filled.number).findings("it is there")


def _compare_interface(target: Target, interface: Interface, number: int) -> PartComparison:
    group = target.node.interfaces[number]
    name = word(interface.name)
    compared = PartComparison(
        target,
        interface.name,
        f"ethtool {name}; ip link show {name}; drain the node; reseat the cable, and check the"
        " switch port",
    )
    if group.rate_gbit_s is not None and not interface.up:
        compared.same(
            "state",
            "down",
            "up",
            ("interfaces", number, "rate_gbit_s"),
            f"{NET}/{interface.name}/operstate",
        )
    else:
        rate, key = inventory.interface_rate(interface), ("interfaces", number, "rate_gbit_s")
        compared.least(
            "rate", rate, group.rate_gbit_s, key, f"{NET}/{interface.name}/speed", unit=gbit
        )
    compared.same(
        "MTU",
        interface.mtu,
        group.mtu,
        ("interfaces", number, "mtu"),
        f"{NET}/{interface.name}/mtu",
    )
    return compared
