"""Findings on what happened on the hosts while rows were measured.

A counter that moved unusually fast in a row that is slower than its neighbors coincided with it.
That does not prove a cause.
"""

from busbw.core.counters import Kind
from busbw.core.finding import Verdict
from busbw.core.result import Row
from busbw.core.sizes import format_size
from busbw.core.sxids import sxid
from busbw.core.telemetry import XidEvent
from busbw.core.xids import xid
from busbw.model.rule import Conclusion, Rule, Run
from busbw.model.telemetry_findings import Sign

NAMED = 3  # parts and rows in a message; the rest is counted
COUNTERS_NAMED = 2  # per part


def _xids(run: Run) -> Conclusion | None:
    gpus = {
        (device.host, device.bus): f"{device.host} GPU {device.index} ({device.bus})"
        for device in run.result.world.devices
    }
    changes = [(change, row) for row in run.result.rows for change in row.machine or []]
    seen = [
        (
            event,
            (
                f"{_event(event)} on"
                f" {gpus.get((change.host, event.bus), f'{change.host} {event.bus}')} during"
                f" {_size(row)}"
            ),
        )
        for change, row in changes
        for event in change.events
        if event.switch or (change.host, event.bus) in gpus
    ]
    if not seen:
        return None
    first = seen[0][0]
    device, switch = f"{first.bus}.0", sxid(first.number)
    fix = switch.fix(switch.effect, device) if first.switch else xid(first.number).fix(device)
    return Conclusion(
        Verdict.WARN,
        _listed([text for _, text in seen]),
        "from the kernel log and NVML events",
        fix,
    )


def _event(event: XidEvent) -> str:
    times = f" x {event.times}" if event.times > 1 else ""
    if event.switch:
        return f"SXid {event.number} (NVSwitch: {sxid(event.number).meaning}){times}"
    return f"Xid {event.number} ({xid(event.number).meaning}){times}"


def _faults(run: Run) -> Conclusion | None:
    """Links that went down and memory that failed are reported for any row, slow or not."""
    seen = [
        (sign, row)
        for row in run.result.rows
        for sign in run.signs.of(row)
        if sign.kind is Kind.FAULT
    ]
    if not seen:
        return None
    parts = [f"{sign.where}: {sign.what} during {_size(row)}" for sign, row in seen]
    fix = "check the cable, port or GPU before trusting results of this run"
    return Conclusion(Verdict.WARN, _listed(parts), _meanings([sign for sign, _ in seen]), fix)


def _coincided(run: Run) -> Conclusion | None:
    """The worst bad row and its unusual signs."""
    bad, signs = run.bad, run.signs
    if not bad:
        return None
    row = bad[0].figure.row
    unusual = signs.unusual(row)
    message = f"{bad[0].message}; at the same time {_listed(_grouped(unusual))}"
    others = list(dict.fromkeys(_size(one.figure.row) for one in bad if one.figure.row is not row))
    if others:
        message += f". The same for {', '.join(others[:NAMED])}" + (
            f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        )
    evidence = f"{_meanings(unusual)}; this coincided, which does not prove it to be the cause"
    if unread := signs.unread(row):
        evidence += f"; not read: {', '.join(unread)}"
    return Conclusion(
        Verdict.WARN, message, evidence, "fix the named problem and measure these sizes again"
    )


def _quiet(run: Run) -> Conclusion | None:
    """Signs without a bad row.

    If most rows have them, their cost is unknown: too few rows are without.
    """
    result, reported = run.result, {id(one.figure.row) for one in run.bad}
    seen: dict[str, list[Sign]] = {}
    rows: dict[str, set[int]] = {}
    for row in result.rows:
        for sign in run.signs.of(row):
            if id(row) not in reported and sign.kind is not Kind.FAULT:
                seen.setdefault(sign.where, []).append(sign)
                rows.setdefault(sign.where, set()).add(id(row))
    if not seen:
        return None
    ordered = sorted(
        seen, key=lambda where: (min(sign.order for sign in seen[where]), -len(rows[where]))
    )
    parts = [
        f"{_grouped([_largest(seen[where])])[0]} in {len(rows[where])} of {len(result.rows)} rows"
        for where in ordered
    ]
    evidence = _meanings([_largest(seen[where]) for where in ordered])
    costly = {
        where
        for where, found in seen.items()
        if any(sign.hard or sign.kind is Kind.LOSS for sign in found)
    }
    if any(2 * len(rows[where]) > len(result.rows) for where in costly):
        message = f"{_listed(parts)}; too few rows are without it to show its effect"
        return Conclusion(
            Verdict.UNKNOWN, message, evidence, "fix it, then compare with this result"
        )
    return Conclusion(Verdict.PASS, f"{_listed(parts)}; no row was slower with it", evidence)


def _largest(signs: list[Sign]) -> Sign:
    """The most serious sign of one part, from the row with the largest amount."""
    order = min(sign.order for sign in signs)
    return max((sign for sign in signs if sign.order == order), key=lambda sign: sign.amount)


def _grouped(signs: list[Sign]) -> list[str]:
    """The signs by part, such as a GPU or port."""
    parts: dict[str, list[str]] = {}
    for sign in signs:
        parts.setdefault(sign.where, []).append(sign.what)
    return [f"{where}: {', '.join(what[:COUNTERS_NAMED])}" for where, what in parts.items()]


def _listed(parts: list[str]) -> str:
    more = len(parts) - NAMED
    return "; ".join(parts[:NAMED]) + (f"; {more} more" if more > 0 else "")


def _meanings(signs: list[Sign]) -> str:
    return "; ".join(list(dict.fromkeys(f"{sign.name}: {sign.meaning}" for sign in signs))[:NAMED])


def _size(row: Row) -> str:
    return format_size(row.size_bytes)


RULES = (
    Rule(
        "machine_xid",
        (Verdict.WARN,),
        "an Xid of a GPU of the run, or an SXid of an NVSwitch, while a row was measured",
        _xids,
    ),
    Rule(
        "machine_fault",
        (Verdict.WARN,),
        "a link went down, memory failed or a sender gave up while a row was measured",
        _faults,
    ),
    Rule(
        "machine",
        (Verdict.WARN,),
        "a row is slow or uncertain, and during it a GPU's clocks were reduced, or a counter of a"
        " port or TCP moved unusually fast: [host counters](../explanation/machine-counters.md)",
        _coincided,
    ),
    Rule(
        "machine_note",
        (Verdict.PASS, Verdict.UNKNOWN),
        "a counter moved, but no row was slower with it; unknown if it moved in most rows",
        _quiet,
    ),
)
