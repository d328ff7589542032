"""How often links went down."""

import math
from collections.abc import Iterator
from statistics import median

from busbw.check.base import Check, failed, passed, skipped, unanswered, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import cabled, counts, evidence, hardware
from busbw.check.nic.symbol_errors import CLEAR
from busbw.check.rates import DAY_S, HOUR_S, LOADED, Count, interval_s, too_fast, with_rises
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted
from busbw.core.units import span

MANY = 5  # Azure's health check allows fewer in 24 hours

ROW = CheckRow(
    id="BW076",
    name="nic-flap",
    layer=Layer.NIC,
    title="links that went down",
    right=f"at most {MANY} times in 24 hours between two readings (--watch-for, --since); with one reading, fewer than {MANY} times "
    "since the driver was loaded, above the median of this host's ports",
    why="While a link is down the job's connections wait. After some seconds they break (NCCL error 12). Causes: cable, optic, switch.",
    fix="dmesg -T | grep -i 'link down' shows when it went down; drain the host; reseat, clean or replace the cable of {device}",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("/sys/class/infiniband/*/ports/*/counters/link_downed", "ethtool -S: link_down_events_phy",
           "/sys/class/net/*/carrier_down_count"),
    sources=("Azure HPC node health checks, azure_ib_link_flapping", "Linux Documentation/ABI/testing/sysfs-class-net"),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable. The median is subtracted: work on a switch takes all ports down."""
    ports = cabled(machine)
    if not ports:
        yield skipped("no RDMA port with a cable")
    read = {port.name: counts(machine, port, ("counters/link_downed",), "link_down_events_phy") for port in ports}
    found = {port.name: _counts(machine, port, read[port.name]) for port in ports}
    totals = {name: max(count.value for count in own) for name, own in found.items() if own}
    rises = {name: _rise(own) for name, own in found.items() if own}
    common, seconds = _median(list(totals.values())), interval_s(machine)
    common_rise = _median([rise for rise in rises.values() if rise is not None])
    for port in ports:
        own, rise = found[port.name], rises.get(port.name)
        if not own:
            reason = read[port.name]
            yield unanswered(port.name, "no link-down counter can be read", reason if isinstance(reason, str) else "")
        elif seconds and rise is not None:
            yield _recent(port, own, rise, common_rise, seconds)
        else:
            yield _ever(port, own, totals[port.name], common)


def _recent(port: Port, own: list[Count], rise: int, common: float, seconds: float) -> Found:
    """What happened between two readings."""
    ever = counted(max(count.value for count in own), "time")
    message = f"its link went down {counted(rise, 'time')} in {span(seconds)}, {ever} {LOADED}"
    seen = evidence(own, expected="no more")
    if too_fast(math.ceil(rise - common), seconds, MANY * HOUR_S / DAY_S):
        return warned(port.name, message, *seen, fix=filled(ROW.fix, device=port.device), weight=rise)
    return passed(port.name, message, *seen)


def _ever(port: Port, own: list[Count], times: int, common: float) -> Found:
    """What one reading tells."""
    seen = evidence(own, expected=f"below {MANY}")
    fix = filled(ROW.fix, device=port.device)
    full = next((count for count in own if count.saturated and count.value == times), None)
    if full:
        message = f"{full.name} is {times}, the most that it can hold: its link went down at least as often {LOADED}"
        clear = "" if port.roce else filled(f"{CLEAR}; ", device=port.device, port=port.number)
        return failed(port.name, message, *seen, fix=f"{clear}{fix}", weight=times)
    message = f"its link went down {counted(times, 'time')} {LOADED}"
    if times - common >= MANY:
        message += f"; the median of this host's ports is {common:g}" if common else ""
        return warned(port.name, f"{message}; when is not known", *seen, fix=fix, weight=times)
    return passed(port.name, message, *seen)


def _counts(machine: Machine, port: Port, own: list[Count] | str) -> list[Count]:
    carriers = [count for netdev in hardware(machine, port) if (count := _carrier(machine, netdev))]
    return ([] if isinstance(own, str) else own) + carriers


def _rise(own: list[Count]) -> int | None:
    """The largest rise; None if none is known."""
    return max((count.rise for count in own if count.rise is not None), default=None)


def _median(values: list[int]) -> float:
    """Work on a switch takes all ports down."""
    return median(values) if len(values) > 2 else 0


def _carrier(machine: Machine, netdev: str) -> Count | None:
    path = f"/sys/class/net/{netdev}/carrier_down_count"
    read = [_number(path, netdev, one.text(path) or "") for one in (machine, machine.earlier) if one]
    now = [count for count in read[:1] if count]
    return next(iter(with_rises(now, [count for count in read[1:] if count])), None)


def _number(path: str, netdev: str, text: str) -> Count | None:
    return Count("carrier_down_count", int(text), path, netdev) if text.isdecimal() else None


CHECK = Check(ROW, look)
