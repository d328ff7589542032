"""What the machines said while rows were measured, set beside rows that stand out. Pure.

Nothing here proves a cause: a row that is slower than its neighbours, and a counter that moved unusually fast in it, coincided.
"""

from busbw.core.counters import Kind
from busbw.core.finding import Verdict
from busbw.core.gpu_events import xid_fix, xid_meaning
from busbw.core.result import Result, Row
from busbw.core.sizes import format_size
from busbw.core.vitals import XidEvent
from busbw.model.rule import Conclusion, Rule, Run
from busbw.model.vital_signs import Sign

NAMED = 3  # places and rows that a message names; the rest is counted
COUNTERS_NAMED = 2  # of each place


def _xids(run: Run) -> Conclusion | None:
    result = run.result
    seen = [(change.host, event, row) for row in result.rows for change in row.machine or [] for event in change.events]
    if not seen:
        return None
    parts = [f"{_event(event)} on {_device(result, host, event)} during {_size(row)}" for host, event, row in seen]
    first = seen[0][1]
    fix = xid_fix(first.number, switch=first.switch)
    return Conclusion(Verdict.WARN, _listed(parts), "read from the kernel's log and NVML's events", fix)


def _event(event: XidEvent) -> str:
    times = f" x {event.times}" if event.times > 1 else ""
    return f"{'SXid' if event.switch else 'Xid'} {event.number} ({xid_meaning(event.number, switch=event.switch)}){times}"


def _device(result: Result, host: str, event: XidEvent) -> str:
    for device in result.world.devices:
        if device.host == host and device.bus == event.bus:
            return f"{host} GPU {device.index} ({event.bus})"
    return f"{host} {event.bus}" + ("" if event.switch else ", a GPU that took no part,")


def _faults(run: Run) -> Conclusion | None:
    """Links that went down and memory that failed are told wherever they are seen, slow row or not."""
    seen = [(sign, row) for row in run.result.rows for sign in run.signs.of(row) if sign.kind is Kind.FAULT]
    if not seen:
        return None
    parts = [f"{sign.where}: {sign.what} during {_size(row)}" for sign, row in seen]
    fix = "check the cable, port or GPU named before trusting a figure of this run"
    return Conclusion(Verdict.WARN, _listed(parts), _meanings([sign for sign, _ in seen]), fix)


def _coincided(run: Run) -> Conclusion | None:
    """The worst bad row and what was unusual in it. Coincidence is all that can be said."""
    bad, signs = run.bad, run.signs
    if not bad:
        return None
    row = bad[0].figure.row
    unusual = signs.unusual(row)
    message = f"{bad[0].words}; at the same time {_listed(_grouped(unusual))}"
    others = list(dict.fromkeys(_size(one.figure.row) for one in bad if one.figure.row is not row))
    if others:
        message += f". Likewise {', '.join(others[:NAMED])}" + (f" and {len(others) - NAMED} more" if len(others) > NAMED else "")
    evidence = f"{_meanings(unusual)}; this coincided, which does not prove it to be the cause"
    unread = sorted({reason for change in row.machine or [] for reason in change.unread})
    if unread:
        evidence += f"; not read: {', '.join(unread)}"
    return Conclusion(Verdict.WARN, message, evidence, "fix what is named and measure these sizes again")


def _quiet(run: Run) -> Conclusion | None:
    """Trouble that no bad row goes with. Where most rows have it, none shows how it would be without: that is unknown, not fine."""
    result, signs, bad = run.result, run.signs, run.bad
    told = {id(one.figure.row) for one in bad}
    seen: dict[str, list[Sign]] = {}
    rows: dict[str, set[int]] = {}
    for row in (row for row in result.rows if id(row) not in told):
        for sign in (sign for sign in signs.of(row) if sign.kind is not Kind.FAULT):
            seen.setdefault(sign.where, []).append(sign)
            rows.setdefault(sign.where, set()).add(id(row))
    if not seen:
        return None
    ordered = sorted(seen, key=lambda where: (min(sign.order for sign in seen[where]), -len(rows[where])))
    parts = [f"{_grouped([_largest(seen[where])])[0]} in {len(rows[where])} of {len(result.rows)} rows" for where in ordered]
    evidence = _meanings([_largest(seen[where]) for where in ordered])
    most = [where for where in ordered if 2 * len(rows[where]) > len(result.rows) and any(_costs(sign) for sign in seen[where])]
    if most:
        message = f"{_listed(parts)}; too few rows are free of it to show what it costs"
        return Conclusion(Verdict.UNKNOWN, message, evidence, "fix it, then compare with this result")
    return Conclusion(Verdict.PASS, f"{_listed(parts)}; no row stands out for it", evidence)


def _costs(sign: Sign) -> bool:
    return sign.hard or sign.kind is Kind.LOSS


def _largest(signs: list[Sign]) -> Sign:
    """The most telling sign of one place, from the row where there was most of it."""
    order = min(sign.order for sign in signs)
    return max((sign for sign in signs if sign.order == order), key=lambda sign: sign.amount)


def _grouped(signs: list[Sign]) -> list[str]:
    """What was seen, place by place."""
    places: dict[str, list[str]] = {}
    for sign in signs:
        places.setdefault(sign.where, []).append(sign.what)
    return [f"{where}: {', '.join(what[:COUNTERS_NAMED])}" for where, what in places.items()]


def _listed(parts: list[str]) -> str:
    more = len(parts) - NAMED
    return "; ".join(parts[:NAMED]) + (f"; {more} more" if more > 0 else "")


def _meanings(signs: list[Sign]) -> str:
    return "; ".join(list(dict.fromkeys(f"{sign.name}: {sign.meaning}" for sign in signs))[:NAMED])


def _size(row: Row) -> str:
    return format_size(row.size_bytes)


RULES = (
    Rule("machine_xid", (Verdict.WARN,), "a GPU's driver or an NVSwitch logged an error while a row was measured", _xids),
    Rule("machine_fault", (Verdict.WARN,), "a link went down, memory failed or a sender gave up while a row was measured", _faults),
    Rule("machine", (Verdict.WARN,),
         "a row is slow or uncertain, and in it a GPU's clocks were held back, or a port or TCP counted unusually many events: "
         "[machine](../explanation/machine-beside-the-number.md)", _coincided),
    Rule("machine_note", (Verdict.PASS, Verdict.UNKNOWN),
         "a counter moved and no row stands out for it; unknown where it moved in most rows", _quiet),
)  # fmt: skip
