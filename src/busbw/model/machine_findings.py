"""Findings on what happened on the hosts while rows were measured.

A counter that moved unusually fast in a row that is slower than its neighbors coincided with it.
That does not prove a cause.
"""

from busbw.core.counters import CounterKind
from busbw.core.finding import Verdict
from busbw.core.result import ResultRow
from busbw.core.sizes import format_size
from busbw.core.sxids import sxid
from busbw.core.telemetry import XidEvent
from busbw.core.xids import xid
from busbw.model.rule import Conclusion, FindingRule, Run
from busbw.model.telemetry_signs import TelemetrySign

NAMED = 3  # parts and rows in a message; the rest is counted
COUNTERS_NAMED = 2  # per part


def _find_xids(run: Run) -> Conclusion | None:
    gpus = {
        (device.host, device.bus): f"{device.host} GPU {device.index} ({device.bus})"
        for device in run.result.world.devices
    }
    texts = []
    first: XidEvent | None = None
    for row in run.result.rows:
        for change in row.machine or []:
            for event in change.events:
                gpu = gpus.get((change.host, event.bus))
                if event.switch or gpu:
                    first = first or event
                    where = gpu or f"{change.host} {event.bus}"
                    texts.append(f"{_event(event)} on {where} during {_size(row)}")
    if first is None:
        return None
    device = f"{first.bus}.0"
    if first.switch:
        switch = sxid(first.number)
        fix = switch.fix(switch.effect, device)
    else:
        fix = xid(first.number).fix(device)
    return Conclusion(Verdict.WARN, _list_parts(texts), "from the kernel log and NVML events", fix)


def _event(event: XidEvent) -> str:
    times = f" x {event.times}" if event.times > 1 else ""
    if event.switch:
        return f"SXid {event.number} (NVSwitch: {sxid(event.number).meaning}){times}"
    return f"Xid {event.number} ({xid(event.number).meaning}){times}"


def _find_faults(run: Run) -> Conclusion | None:
    """Links that went down and memory that failed are reported for any row, slow or not."""
    faults = [
        (sign, row)
        for row in run.result.rows
        for sign in run.signs.of(row)
        if sign.kind is CounterKind.FAULT
    ]
    if not faults:
        return None
    parts = [f"{sign.where}: {sign.what} during {_size(row)}" for sign, row in faults]
    fix = "check the cable, port or GPU before trusting results of this run"
    return Conclusion(
        Verdict.WARN, _list_parts(parts), _meanings([sign for sign, _ in faults]), fix
    )


def _find_coincidence(run: Run) -> Conclusion | None:
    """The worst bad row and its unusual signs."""
    if not run.bad:
        return None
    worst = run.bad[0]
    row = worst.figure.row
    unusual = run.signs.unusual(row)
    message = f"{worst.message}; at the same time {_list_parts(_group_by_part(unusual))}"
    other_rows = [slow.figure.row for slow in run.bad if slow.figure.row is not row]
    sizes = list(dict.fromkeys(_size(other) for other in other_rows))
    if sizes:
        message += f". The same for {', '.join(sizes[:NAMED])}"
    if len(sizes) > NAMED:
        message += f" and {len(sizes) - NAMED} more"
    evidence = f"{_meanings(unusual)}; this coincided, which does not prove it to be the cause"
    unread = run.signs.unread(row)
    if unread:
        evidence += f"; not read: {', '.join(unread)}"
    return Conclusion(
        Verdict.WARN, message, evidence, "fix the named problem and measure these sizes again"
    )


def _find_other_signs(run: Run) -> Conclusion | None:
    """Signs without a bad row.

    If most rows have them, their cost is unknown: too few rows are without.
    """
    result = run.result
    reported = {id(slow.figure.row) for slow in run.bad}
    signs: dict[str, list[TelemetrySign]] = {}
    rows: dict[str, set[int]] = {}
    for row in result.rows:
        for sign in run.signs.of(row):
            if id(row) not in reported and sign.kind is not CounterKind.FAULT:
                signs.setdefault(sign.where, []).append(sign)
                rows.setdefault(sign.where, set()).add(id(row))
    if not signs:
        return None
    largest = {where: _most_serious(part_signs) for where, part_signs in signs.items()}
    ordered = sorted(signs, key=lambda where: (largest[where].order, -len(rows[where])))
    parts = [
        f"{_group_by_part([largest[where]])[0]} in {len(rows[where])} of {len(result.rows)} rows"
        for where in ordered
    ]
    evidence = _meanings([largest[where] for where in ordered])
    for where, part_signs in signs.items():
        costly = any(sign.hard or sign.kind is CounterKind.LOSS for sign in part_signs)
        if costly and 2 * len(rows[where]) > len(result.rows):
            message = f"{_list_parts(parts)}; too few rows are without it to show its effect"
            fix = "fix it, then compare with this result"
            return Conclusion(Verdict.UNKNOWN, message, evidence, fix)
    return Conclusion(Verdict.PASS, f"{_list_parts(parts)}; no row was slower with it", evidence)


def _most_serious(signs: list[TelemetrySign]) -> TelemetrySign:
    """The most serious sign of one part, from the row with the largest amount."""
    order = min(sign.order for sign in signs)
    return max((sign for sign in signs if sign.order == order), key=lambda sign: sign.amount)


def _group_by_part(signs: list[TelemetrySign]) -> list[str]:
    """The signs by part, such as a GPU or port."""
    parts: dict[str, list[str]] = {}
    for sign in signs:
        parts.setdefault(sign.where, []).append(sign.what)
    return [f"{where}: {', '.join(texts[:COUNTERS_NAMED])}" for where, texts in parts.items()]


def _list_parts(parts: list[str]) -> str:
    more = len(parts) - NAMED
    return "; ".join(parts[:NAMED]) + (f"; {more} more" if more > 0 else "")


def _meanings(signs: list[TelemetrySign]) -> str:
    meanings = list(dict.fromkeys(f"{sign.name}: {sign.meaning}" for sign in signs))
    return "; ".join(meanings[:NAMED])


def _size(row: ResultRow) -> str:
    return format_size(row.size_bytes)


RULES = (
    FindingRule(
        "machine_xid",
        (Verdict.WARN,),
        "an Xid of a GPU of the run, or an SXid of an NVSwitch, while a row was measured",
        _find_xids,
    ),
    FindingRule(
        "machine_fault",
        (Verdict.WARN,),
        "a link went down, memory failed or a sender gave up while a row was measured",
        _find_faults,
    ),
    FindingRule(
        "machine",
        (Verdict.WARN,),
        "a row is slow or uncertain, and during it a GPU's clocks were reduced, or a counter of a"
        " port or TCP moved unusually fast: [host counters](../explanation/machine-counters.md)",
        _find_coincidence,
    ),
    FindingRule(
        "machine_note",
        (Verdict.PASS, Verdict.UNKNOWN),
        "a counter moved, but no row was slower with it; unknown if it moved in most rows",
        _find_other_signs,
    ),
)
