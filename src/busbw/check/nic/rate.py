"""Whether ports run at their full rate."""

import re
from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import cabled, kinds
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

RATE = re.compile(r"([\d.]+) Gb/sec \((\d+)X")
LANES = 4

ROW = CheckRow(
    id="BW066",
    name="nic-rate",
    layer=Layer.NIC,
    title="rate of RDMA ports",
    right="the same rate on all active ports of the same model, with all four lanes",
    why="A port that lost lanes or speed carries half or less. The slowest port sets the pace of a collective over all rails.",
    fix="drain the host; reseat or replace the cable of {device}, then mlxlink -d {device} -m",
    stays="a cable is permanent; a speed that was forced with ethtool or on the switch must be cleared there",
    reads=("/sys/class/infiniband/*/ports/*/rate", "/sys/class/infiniband/*/{board_id,hca_type}"),
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each active port with a cable, compared with the fastest of the same model. The rate of a port that is down means nothing."""
    ports = [port for port in cabled(machine) if port.active]
    if not ports:
        yield skipped("no active RDMA port with a cable")
    likes = {port.name: group for group in kinds(machine, ports).values() for port in group}
    for port in ports:
        yield _judge(machine, port, [like for like in likes.get(port.name, []) if like.layer == port.layer])


def _judge(machine: Machine, port: Port, likes: list[Port]) -> Found:
    reading = machine.read(f"{port.path}/rate")
    own = _rate(reading.text)
    if own is None:
        return unread(port.name, reading, f"the rate ('{reading.text}')" if reading.text else "the rate")
    rates = [rate for like in likes if (rate := _rate(machine.text(f"{like.path}/rate"))) is not None]
    best = max(rates, default=own)
    evidence = Evidence(f"{port.path}/rate", reading.text or "", f"{best[0]:g} Gb/sec" if best > own else "4X")
    if own < best:
        return warned(
            port.name,
            f"{own[0]:g} Gbit/s over {own[1]} lanes, while ports of the same model have {best[0]:g} over {best[1]}",
            evidence,
            fix=filled(ROW.fix, device=port.device),
            weight=best[0] - own[0],
        )
    if own[1] < LANES and len(rates) < 2:
        return not_offered(
            port.name, f"{own[1]} of {LANES} lanes: normal for an SFP port or a breakout cable, otherwise degraded", evidence
        )
    lanes = "" if own[1] >= LANES else f" over {own[1]} lanes, like all of the same model"
    return passed(port.name, f"{own[0]:g} Gbit/s{lanes}", evidence)


def _rate(text: str | None) -> tuple[float, int] | None:
    """Gbit/s and lanes."""
    match = RATE.match(text or "")
    return (float(match.group(1)), int(match.group(2))) if match else None


CHECK = Check(ROW, look)
