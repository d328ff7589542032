"""Links that went down, and errors on the wire."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from busbw.check.base import check, failed, passed, skipped, unanswered, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import cabled, counter_evidence, counts, hardware, per_port, total
from busbw.check.rates import (
    DAY_S,
    HOUR_S,
    RATE_UNKNOWN,
    SINCE_DRIVER_LOADED,
    WHEN_UNKNOWN,
    Count,
    Window,
    interval_s,
    too_fast,
    window,
    with_rises,
)
from busbw.check.shell_words import filled
from busbw.check.types import Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.sizes import counted, span

MANY_FLAPS = 5  # Azure's health check allows fewer in 24 hours

FLAP = CheckRow(
    id="BW076",
    name="nic-flap",
    layer=Layer.NIC,
    title="links that went down",
    right=(
        f"at most {MANY_FLAPS} times in 24 hours between two readings (--watch-for, --since); "
        f"with one reading, fewer than {MANY_FLAPS} times "
        "since the driver was loaded, above the median of this host's ports; no port unlike the"
        " others between two readings"
    ),
    why=(
        "While a link is down the job's connections wait. After some seconds they break (NCCL error"
        " 12). Causes: cable, optic, switch."
    ),
    fix=(
        "dmesg -T | grep -i 'link down' shows when it went down; drain the host; reseat, clean or"
        " replace the cable of {device}"
    ),
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=(
        "/sys/class/infiniband/*/ports/*/counters/link_downed",
        "ethtool -S: link_down_events_phy",
        "/sys/class/net/*/carrier_down_count",
    ),
    sources=(
        "Azure HPC node health checks, azure_ib_link_flapping",
        "Linux Documentation/ABI/testing/sysfs-class-net",
    ),
)
PER_HOUR = 120  # NVSentinel's limit for symbol_error
OVERRUN = "excessive_buffer_overrun_errors"
RECOVERED = "link_error_recovery"
FILES = ("symbol_error", RECOVERED, "port_rcv_errors", "local_link_integrity_errors", OVERRUN)
PHY = "rx_symbol_err_phy|rx_pcs_symbol_err_phy|rx_crc_errors_phy"
OF_SYMBOLS = ("symbol_error", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy")  # the same errors
NEVER_ALLOWED = f"local_link_integrity_errors|{OVERRUN}"
WATCH_COUNTERS = "busbw check --only nic-symbol-errors --watch-for 60 shows how fast they rise"
CLEAR_COUNTERS = "as root, which sets the counters to 0: perfquery -C {device} -P {port} -R"
RESEAT_CABLE = (
    "drain the host; reseat, clean or replace the cable of {device}, then mlxlink -d {device} -m"
    " -c -e"
)
CREDITS_FIX = (
    "the other end sent without credits, which no cable mends: smpquery -C {device} -P {port} -D "
    "portinfo 0 {port} shows the virtual lanes (OperVLs) and MTU, which must be those of the "
    "other end; update the firmware of the NIC and of its switch"
)


@check(FLAP)
def check_flap(machine: Machine) -> Iterator[Finding]:
    """Each port with a cable. The median is subtracted: work on a switch takes all ports down."""
    ports = cabled(machine)
    if not ports:
        yield skipped("no RDMA port with a cable")
    read = {
        port.name: counts(machine, port, ("counters/link_downed",), "link_down_events_phy")
        for port in ports
    }
    down_counts = {port.name: _down_counts(machine, port, read[port.name]) for port in ports}
    known = {name: port_counts for name, port_counts in down_counts.items() if port_counts}
    totals = {name: max(map(_value, port_counts)) for name, port_counts in known.items()}
    rises = {name: _largest_rise(port_counts) for name, port_counts in known.items()}
    common, seconds = _median(list(totals.values())), interval_s(machine)
    common_rise = _median([rise for rise in rises.values() if rise is not None])
    for port in ports:
        port_counts, rise = down_counts[port.name], rises.get(port.name)
        if not port_counts:
            counters = read[port.name]
            reason = counters if isinstance(counters, str) else ""
            yield unanswered(port.name, "no link-down counter can be read", reason)
        elif seconds and rise is not None:
            yield _judge_rise(port, port_counts, rise, common_rise, seconds)
        else:
            yield _judge_total(port, port_counts, totals[port.name], common)


def _value(count: Count) -> int:
    return count.value


def _judge_rise(
    port: RdmaPort, port_counts: list[Count], rise: int, common: float, seconds: float
) -> Finding:
    """The finding from two readings, `seconds` apart."""
    ever = counted(max(map(_value, port_counts)), "time")
    message = f"its link went down {counted(rise, 'time')} in {span(seconds)}, {ever}"
    message += f" {SINCE_DRIVER_LOADED}"
    evidence = counter_evidence(port_counts, expected="no more")
    if too_fast(math.ceil(rise - common), seconds, MANY_FLAPS * HOUR_S / DAY_S):
        return warned(
            port.name, message, *evidence, fix=filled(FLAP.fix, device=port.device), weight=rise
        )
    return passed(port.name, message, *evidence)


def _judge_total(port: RdmaPort, port_counts: list[Count], times: int, common: float) -> Finding:
    """The finding from one reading."""
    evidence = counter_evidence(port_counts, expected=f"below {MANY_FLAPS}")
    fix = filled(FLAP.fix, device=port.device)
    saturated = [count for count in port_counts if count.saturated and count.value == times]
    if saturated:
        message = (
            f"{saturated[0].name} is {times}, the most that it can hold: its link went down at"
            f" least as often {SINCE_DRIVER_LOADED}"
        )
        clear = (
            "" if port.roce else filled(f"{CLEAR_COUNTERS}; ", device=port.device, port=port.number)
        )
        return failed(port.name, message, *evidence, fix=f"{clear}{fix}", weight=times)
    message = f"its link went down {counted(times, 'time')} {SINCE_DRIVER_LOADED}"
    if times - common >= MANY_FLAPS:
        message += f"; the median of this host's ports is {common:g}" if common else ""
        return warned(port.name, f"{message}; {WHEN_UNKNOWN}", *evidence, fix=fix, weight=times)
    return passed(port.name, message, *evidence)


def _down_counts(machine: Machine, port: RdmaPort, port_counts: list[Count] | str) -> list[Count]:
    of_netdevs = [_carrier_count(machine, netdev) for netdev in hardware(machine, port)]
    carriers = [count for count in of_netdevs if count]
    return ([] if isinstance(port_counts, str) else port_counts) + carriers


def _largest_rise(port_counts: list[Count]) -> int | None:
    """The largest rise; None if none is known."""
    return max((count.rise for count in port_counts if count.rise is not None), default=None)


def _median(values: list[int]) -> float:
    """The median of several ports; 0 for one or two, which have nothing in common."""
    return median(values) if len(values) > 2 else 0


def _carrier_count(machine: Machine, netdev: str) -> Count | None:
    path = f"/sys/class/net/{netdev}/carrier_down_count"
    now = _count_of(path, netdev, machine.text(path) or "")
    earlier_text = machine.earlier.text(path) if machine.earlier else None
    before = _count_of(path, netdev, earlier_text or "")
    if now is None:
        return None
    return with_rises([now], [before] if before else [])[0]


def _count_of(path: str, netdev: str, text: str) -> Count | None:
    return Count("carrier_down_count", int(text), path, netdev) if text.isdecimal() else None


SYMBOL_ERRORS = CheckRow(
    id="BW077",
    name="nic-symbol-errors",
    layer=Layer.NIC,
    title="uncorrected errors on the wire",
    right=(
        f"at most {PER_HOUR} per hour between two readings (--watch-for, --since); with one "
        f"reading, at most {PER_HOUR} in all, and "
        "no counter at its maximum; no port unlike the others between two readings"
    ),
    why=(
        "A packet with such an error is lost. RDMA retransmits it and every packet after it. "
        "Many of these counters have 4 to 16 bits and stay at their maximum, so a total does not "
        "tell whether errors still come."
    ),
    fix=(
        f"{WATCH_COUNTERS}; if they do: {RESEAT_CABLE}; for {OVERRUN}: {CREDITS_FIX};"
        f" if a counter is at its maximum: {CLEAR_COUNTERS}"
    ),
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=(
        "/sys/class/infiniband/*/ports/*/counters/{" + ",".join(FILES) + "}",
        f"ethtool -S: {PHY.replace('|', ', ')}",
    ),
    sources=(
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
        "InfiniBand Architecture Specification, PortCounters",
        "NVSentinel, NIC health monitor",
        "infiniband-diags: perfquery(8), smpquery(8)",
    ),
)


@per_port(SYMBOL_ERRORS, [f"counters/{name}" for name in FILES], PHY)
def check_symbol_errors(machine: Machine, port: RdmaPort, counters: list[Count]) -> Finding:
    saturated = [count for count in counters if count.saturated]
    recent = window(machine, [count for count in counters if not count.saturated])
    errors = _errors(counters)
    text = f"{counted(errors, 'error')} {SINCE_DRIVER_LOADED}"
    if recent.seconds:
        text += f", {_errors(recent.counts)} of them {recent.since}"
    if saturated:
        named = ", ".join(f"{count.name} {count.value}" for count in saturated)
        report = failed if any(count.name == RECOVERED for count in saturated) else warned
        message = (
            f"{named}: the most that the counter holds, so later errors are not counted, and"
            f" {RATE_UNKNOWN}"
        )
        return report(
            port.name,
            message,
            *counter_evidence(counters),
            fix=_fix_of_counters(port, counters, recent, saturated),
            weight=errors,
        )
    if _too_many(recent):
        message = text if recent.seconds else f"{text}; {RATE_UNKNOWN}"
        return warned(
            port.name,
            message,
            *counter_evidence(counters),
            fix=_fix_of_counters(port, recent.counts, recent, saturated),
            weight=_errors(recent.counts),
        )
    return passed(port.name, text, *counter_evidence(counters))


def _errors(counts: Sequence[Count]) -> int:
    """How many errors these are: several counters count those of symbols."""
    by_name = {count.name: total(counts, count.name) for count in counts}
    of_symbols = [by_name.pop(name, 0) for name in OF_SYMBOLS]
    return max(of_symbols) + sum(by_name.values())


def _too_many(recent: Window) -> bool:
    """Whether errors come too fast; with one reading, whether they may."""
    errors = _errors(recent.counts)
    often = too_fast(errors, recent.seconds, PER_HOUR) if recent.seconds else errors > PER_HOUR
    return often or bool(total(recent.counts, NEVER_ALLOWED))


def _fix_of_counters(
    port: RdmaPort, counters: Sequence[Count], recent: Window, saturated: Sequence[Count]
) -> str:
    """The fix for each counter that is not 0. Only some of these faults are in the cable."""
    credits = total(counters, OVERRUN)
    they_rise = recent.seconds and not saturated
    steps = []
    if saturated and not port.roce:
        steps.append(CLEAR_COUNTERS)
    if not they_rise:
        steps.append(WATCH_COUNTERS)
    if total(counters, ".*") > credits:
        steps.append(RESEAT_CABLE if they_rise else f"if they do: {RESEAT_CABLE}")
    if credits:
        steps.append(CREDITS_FIX)
    return filled("; ".join(steps), device=port.device, port=port.number)
