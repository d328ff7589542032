"""The physical state of ports."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unread, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import cabled, hardware
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.interfaces import NET

UP = 0x1  # IFF_UP

ETHTOOL, MLXLINK = "ethtool {netdev}", "mlxlink -d {device} -m"
CABLE = "if other ports of this host carry a job, drain it; reseat or replace the cable of {device}, try another switch port"

ROW = CheckRow(
    id="BW062",
    name="nic-physical-state",
    layer=Layer.NIC,
    title="physical state of RDMA ports",
    right="5: LinkUp",
    why="Polling means that nothing answers at the other end: check cable, transceiver and switch port. Disabled means that the port is "
    "turned off.",
    fix="ip link set dev {netdev} up, or drain the host and reseat the cable of {device}",
    stays="a cable is permanent; an interface set up by hand is down after a reboot unless netplan or NetworkManager has it",
    reads=("/sys/class/infiniband/*/ports/*/phys_state", "/sys/class/net/*/{flags,operstate}"),
    sources=("InfiniBand Architecture Specification, PortPhysicalState", "Linux drivers/infiniband/hw/mlx5/main.c"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    ports = cabled(machine)
    if not ports:
        yield skipped("no RDMA port with a cable")
    for port in ports:
        path = f"{port.path}/phys_state"
        reading = machine.read(path)
        if not reading.text:
            yield unread(port.name, reading, "the physical state")
        elif reading.text.startswith("5"):
            yield passed(port.name, "the link is up", Evidence(path, reading.text, "5: LinkUp"), *_interfaces(machine, port))
        else:
            yield _down(machine, port, Evidence(path, reading.text, "5: LinkUp"))


def _interfaces(machine: Machine, port: Port) -> Iterator[Evidence]:
    """States of the interfaces of a RoCE port."""
    for netdev in hardware(machine, port) if port.roce else ():
        path = f"{NET}/{netdev}/operstate"
        state = machine.text(path)
        if state:
            yield Evidence(path, state, "up")


def _down(machine: Machine, port: Port, evidence: Evidence) -> Found:
    flags = f"/sys/class/net/{port.netdev}/flags"
    text = machine.text(flags) if port.netdev else None
    if text is not None and not _integer(text) & UP:
        switched_off = Evidence(flags, text, "the lowest bit set")
        return warned(
            port.name,
            f"{port.netdev} is set down",
            evidence,
            switched_off,
            *_interfaces(machine, port),
            fix=filled("ip link set dev {netdev} up", netdev=port.netdev),
        )
    state = evidence.seen.partition(": ")[2] or evidence.seen
    what = {"Polling": "nothing answers at the other end of the cable", "LinkErrorRecovery": "the link has errors"}.get(state, state)
    shows = ETHTOOL if port.roce and port.netdev else MLXLINK
    return warned(
        port.name,
        f"no link: {what}",
        evidence,
        *_interfaces(machine, port),
        fix=filled(f"{shows}; {CABLE}", netdev=port.netdev, device=port.device),
    )


def _integer(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return UP


CHECK = Check(ROW, look)
