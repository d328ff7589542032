"""The reference page of machine counters, clock reasons and Xids, from their tables."""

from markdown_table import code, table

from busbw.core.counters import Counter, Place, Sense, at
from busbw.core.gpu_events import CLOCK_REASONS, XIDS

_SAYS = {
    Sense.TRAFFIC: "traffic",
    Sense.THROTTLE: "lower clocks",
    Sense.CONGESTION: "congestion",
    Sense.LOSS: "loss",
    Sense.FAULT: "fault",
}


def counters() -> str:
    """A table of counters for each place, then clock reasons and Xids."""
    parts = [f"## {place.value}\n\n{_counters(at(place))}" for place in Place]
    reasons = [(code(f"{row.bit:#x}"), code(row.name), row.weight.value, row.meaning) for row in CLOCK_REASONS]
    xids = [(row.number, row.meaning, row.fix) for row in XIDS]
    return (
        "Counters are read before and after each size; a row of the result contains the changes. Except for traffic, no change is good. A "
        "counter that the machine lacks is absent. A finding considers a row only if at least as many events as in the column `least` "
        "were counted. [How to read it](../explanation/machine-beside-the-number.md).\n\n"
        + "".join(parts)
        + "## Clocks event reasons\n\nWhy a GPU's clocks are not higher, formerly called throttle reasons. `load` is normal for a GPU that "
        "is busy, and a sign only if the clock fell.\n\n"
        + table(("bit", "reason", "weight", "meaning"), reasons)
        + "## Xids\n\nThe driver's errors, from the kernel's log and NVML's events; an NVSwitch's are SXids. Numbers are those of "
        "[NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/).\n\n" + table(("number", "meaning", "what to do"), xids)
    )


def _counters(rows: tuple[Counter, ...]) -> str:
    shown = [(code(row.name), code(row.source), row.unit, _SAYS[row.sense], row.notable, row.meaning, _limit(row)) for row in rows]
    return table(("counter", "source", "unit", "kind", "least", "meaning", "range"), shown)


def _limit(row: Counter) -> str:
    return f"{row.bits} bits" + (", stays at its largest value" if row.saturates else ", wraps" if row.bits == 32 else "")
