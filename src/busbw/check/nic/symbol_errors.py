"""Uncorrected errors of the cable or optic."""

from collections.abc import Iterator, Sequence

from busbw.check.base import Check, failed, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import each_port, evidence, total
from busbw.check.rates import LOADED, NOT_KNOWN, Count, Window, too_fast, window
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import counted

PER_HOUR = 120  # NVSentinel's limit for symbol_error
OVERRUN = "excessive_buffer_overrun_errors"
RECOVERED = "link_error_recovery"
FILES = ("symbol_error", RECOVERED, "port_rcv_errors", "local_link_integrity_errors", OVERRUN)
PHY = "rx_symbol_err_phy|rx_pcs_symbol_err_phy|rx_crc_errors_phy"
NEVER = f"local_link_integrity_errors|{OVERRUN}"

WATCH = "busbw check --only nic-symbol-errors --watch-for 60 shows how fast they rise"
CLEAR = "as root, which sets the counters to 0: perfquery -C {device} -P {port} -R"
CABLE = "drain the host; reseat, clean or replace the cable of {device}, then mlxlink -d {device} -m -c -e"
CREDITS = (
    "the other end sent without credits, which no cable mends: smpquery -C {device} -P {port} -D portinfo 0 {port} shows the virtual lanes "
    "(OperVLs) and MTU, which must be those of the other end; update the firmware of the NIC and of its switch"
)

ROW = CheckRow(
    id="BW077",
    name="nic-symbol-errors",
    layer=Layer.NIC,
    title="uncorrected errors on the wire",
    right=f"at most {PER_HOUR} per hour between two readings (--watch-for, --since); with one reading, at most {PER_HOUR} in all, and "
    "no counter at its maximum",
    why="A packet with such an error is lost. RDMA retransmits it and every packet after it. Many of these counters have 4 to 16 bits "
    "and stay at their maximum, so a total does not tell whether errors still come.",
    fix=f"{WATCH}; if they do: {CABLE}; for {OVERRUN}: {CREDITS}; if a counter is at its maximum: {CLEAR}",
    stays="permanent: hardware; the counters restart when the driver is loaded",
    reads=("/sys/class/infiniband/*/ports/*/counters/{" + ",".join(FILES) + "}", f"ethtool -S: {PHY.replace('|', ', ')}"),
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband", "InfiniBand Architecture Specification, PortCounters",
             "NVSentinel, NIC health monitor", "infiniband-diags: perfquery(8), smpquery(8)"),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    yield from each_port(machine, [f"counters/{name}" for name in FILES], PHY, lambda port, found: _judge(machine, port, found))


def _judge(machine: Machine, port: Port, found: list[Count]) -> Found:
    full = [count for count in found if count.saturated]
    seen = window(machine, [count for count in found if not count.saturated])
    errors = total(found, ".*")
    text = f"{counted(errors, 'error')} {LOADED}" + (f", {total(seen.counts, '.*')} of them {seen.since}" if seen.seconds else "")
    if full:
        named = ", ".join(f"{count.name} {count.value}" for count in full)
        report = failed if any(count.name == RECOVERED for count in full) else warned
        message = f"{named}: the most that the counter holds, so later errors are not counted, and {NOT_KNOWN}"
        return report(port.name, message, *evidence(found), fix=_fix(port, found, seen, full), weight=errors)
    if _bad(seen):
        message = text if seen.seconds else f"{text}; {NOT_KNOWN}"
        return warned(port.name, message, *evidence(found), fix=_fix(port, seen.counts, seen, full), weight=total(seen.counts, ".*"))
    return passed(port.name, text, *evidence(found))


def _bad(seen: Window) -> bool:
    """Whether errors come too fast; of one reading, whether they may."""
    errors = total(seen.counts, ".*")
    often = too_fast(errors, seen.seconds, PER_HOUR) if seen.seconds else errors > PER_HOUR
    return often or bool(total(seen.counts, NEVER))


def _fix(port: Port, found: Sequence[Count], seen: Window, full: Sequence[Count]) -> str:
    """What each counter that is not 0 asks for: only some are mended at the cable."""
    credits = total(found, OVERRUN)
    steps = [CLEAR] if full and not port.roce else []
    steps += [] if seen.seconds and not full else [WATCH]
    steps += [CABLE if seen.seconds and not full else f"if they do: {CABLE}"] if total(found, ".*") > credits else []
    steps += [CREDITS] if credits else []
    return filled("; ".join(steps), device=port.device, port=port.number)


CHECK = Check(ROW, look)
