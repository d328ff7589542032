"""The state of RDMA ports, and which of them should be active."""

from collections.abc import Iterator, Sequence

from busbw.check.base import broken, check, failed, passed, skipped, unread, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import by_model, cabled, gbits, hardware, own_ports
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.interfaces import NET
from busbw.host.nic import RDMA

_SINCE_START = ("counters/link_downed",)
ACTIVE_STATE = "4: ACTIVE"
LINKED = ("INIT", "ARMED")  # the physical link is up
UP_FLAG = 0x1  # IFF_UP
ETHTOOL, MLXLINK = "ethtool {netdev}", "mlxlink -d {device} -m"
RESEAT_CABLE = (
    "if other ports of this host carry a job, drain it; reseat or replace the cable of {device},"
    " try another switch port"
)


def _should_be_active(machine: Machine, port: RdmaPort, ports: Sequence[RdmaPort]) -> str:
    """Why a port that is down should be active; '' if it may be unused.

    A port of the fastest model should be active if a port at the same place of another card of this
    model is: of cards with two ports often only the first has a cable. So should any port that had
    a link since the start.
    """
    active = [other for other in ports if other.active]
    fastest = max((gbits(machine, other) for other in active), default=0.0)
    group = next((group for group in by_model(machine, ports).values() if port in group), [port])
    alike = [
        other for other in group if other.active and _place_on_card(other) == _place_on_card(port)
    ]
    if alike and any(other.active and gbits(machine, other) == fastest for other in group):
        if len(alike) > 1:
            return f"{len(alike)} ports of the same model are active"
        return f"{alike[0].name} of the same model is active"
    return "it had a link since the start" if _had_link(machine, port) else ""


def _place_on_card(port: RdmaPort) -> tuple[str, str]:
    """The PCI function of the card, and the number of the port."""
    return port.bdf.rpartition(".")[2], port.number


def _had_link(machine: Machine, port: RdmaPort) -> bool:
    paths = [f"{port.path}/{name}" for name in _SINCE_START]
    paths += [f"/sys/class/net/{port.netdev}/carrier_up_count"] if port.netdev else []
    texts = (machine.text(path) or "" for path in paths)
    return any(text.isdecimal() and int(text) > 0 for text in texts)


STATE = CheckRow(
    id="BW061",
    name="nic-state",
    layer=Layer.NIC,
    title="state of RDMA ports",
    right=(
        "4: ACTIVE; only a port that no port like it suggests and that never had a link may be down"
    ),
    why=(
        "NCCL uses only active ports. It silently runs without a port that is down, and the job "
        "is slower. INIT means that a port has a link, and no subnet manager has configured it."
    ),
    fix="rdma link show {device}",
    stays="depends on the cause; the checks nic-physical-state and nic-subnet-manager name it",
    reads=(
        "/sys/class/infiniband/*/ports/*/{state,counters/link_downed}",
        "/sys/class/net/*/carrier_up_count",
    ),
    sources=(
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
        "Azure node health checks, check_hw_ib",
        "NVSentinel, NIC health monitor",
    ),
)


@check(STATE)
def check_state(machine: Machine) -> Iterator[Finding]:
    """Each device without a port, then each port except those for guests."""
    portless = [name for name in machine.names(RDMA) if not machine.names(f"{RDMA}/{name}/ports")]
    for name in portless:
        evidence = Evidence(f"{RDMA}/{name}/ports", "no port", "1")
        yield failed(
            name,
            "the RDMA device shows no port: its driver or firmware failed",
            evidence,
            fix=filled("dmesg | grep {name}", name=name),
        )
    ports = own_ports(machine)
    if not ports and not portless:
        yield skipped("no RDMA port")
    for port in ports:
        yield _judge_state(machine, port, ports)


def _judge_state(machine: Machine, port: RdmaPort, ports: tuple[RdmaPort, ...]) -> Finding:
    path = f"{port.path}/state"
    reading, fix = machine.read(path), filled(STATE.fix, device=port.device)
    if broken(reading):
        evidence_of_error = Evidence(path, reading.reason.removeprefix(f"{path}: "), ACTIVE_STATE)
        return failed(
            port.name,
            "its state cannot be read: the device does not answer",
            evidence_of_error,
            fix=filled("dmesg | grep {name}", name=port.bdf or port.device),
        )
    if not reading.text:
        return unread(port.name, reading, "the state")
    evidence = Evidence(path, reading.text, ACTIVE_STATE)
    if port.active:
        return passed(port.name, "it is active", evidence)
    state = reading.text.partition(": ")[2] or reading.text
    if not any(other.active for other in ports):
        return failed(
            port.name, f"it is {state}, like all ports: NCCL has no RDMA", evidence, fix=fix
        )
    if state in LINKED:
        return failed(
            port.name,
            f"it is {state}: it has a link, but is not configured, and NCCL runs without it",
            evidence,
            fix=fix,
        )
    reason = _should_be_active(machine, port, ports)
    if reason:
        return failed(
            port.name, f"it is {state}, while {reason}: NCCL runs without it", evidence, fix=fix
        )
    return warned(port.name, f"it is {state}: NCCL runs without it", evidence, fix=fix)


PHYSICAL_STATE = CheckRow(
    id="BW062",
    name="nic-physical-state",
    layer=Layer.NIC,
    title="physical state of RDMA ports",
    right="5: LinkUp",
    why=(
        "Polling means that nothing answers at the other end: check cable, transceiver and "
        "switch port. Disabled means that the port is turned off."
    ),
    fix="ip link set dev {netdev} up, or drain the host and reseat the cable of {device}",
    stays=(
        "a cable is permanent; an interface set up by hand is down after a reboot unless netplan or"
        " NetworkManager has it"
    ),
    reads=("/sys/class/infiniband/*/ports/*/phys_state", "/sys/class/net/*/{flags,operstate}"),
    sources=(
        "InfiniBand Architecture Specification, PortPhysicalState",
        "Linux drivers/infiniband/hw/mlx5/main.c",
    ),
)


@check(PHYSICAL_STATE)
def check_physical_state(machine: Machine) -> Iterator[Finding]:
    ports = cabled(machine)
    if not ports:
        yield skipped("no RDMA port with a cable")
    for port in ports:
        path = f"{port.path}/phys_state"
        reading = machine.read(path)
        if not reading.text:
            yield unread(port.name, reading, "the physical state")
        elif reading.text.startswith("5"):
            yield passed(
                port.name,
                "the link is up",
                Evidence(path, reading.text, "5: LinkUp"),
                *_interface_states(machine, port),
            )
        else:
            yield _judge_down(machine, port, Evidence(path, reading.text, "5: LinkUp"))


def _interface_states(machine: Machine, port: RdmaPort) -> Iterator[Evidence]:
    """States of the interfaces of a RoCE port."""
    for netdev in hardware(machine, port) if port.roce else ():
        path = f"{NET}/{netdev}/operstate"
        state = machine.text(path)
        if state:
            yield Evidence(path, state, "up")


def _judge_down(machine: Machine, port: RdmaPort, evidence: Evidence) -> Finding:
    flags = f"/sys/class/net/{port.netdev}/flags"
    text = machine.text(flags) if port.netdev else None
    if text is not None and not _parse_flags(text) & UP_FLAG:
        switched_off = Evidence(flags, text, "the lowest bit set")
        return warned(
            port.name,
            f"{port.netdev} is set down",
            evidence,
            switched_off,
            *_interface_states(machine, port),
            fix=filled("ip link set dev {netdev} up", netdev=port.netdev),
        )
    state = evidence.seen.partition(": ")[2] or evidence.seen
    meaning = {
        "Polling": "nothing answers at the other end of the cable",
        "LinkErrorRecovery": "the link has errors",
    }.get(state, state)
    shows = ETHTOOL if port.roce and port.netdev else MLXLINK
    return warned(
        port.name,
        f"no link: {meaning}",
        evidence,
        *_interface_states(machine, port),
        fix=filled(f"{shows}; {RESEAT_CABLE}", netdev=port.netdev, device=port.device),
    )


def _parse_flags(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return UP_FLAG
