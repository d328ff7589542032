"""The reference page of what is read of a machine beside a measurement: counters, clock reasons and Xids, from their tables."""

from markdown_table import code, table

from busbw.core.counters import Counter, Kind, Owner, at
from busbw.core.gpu_events import CLOCK_REASONS, XIDS

_SAYS = {
    Kind.TRAFFIC: "traffic",
    Kind.THROTTLE: "clocks held back",
    Kind.CONGESTION: "congestion",
    Kind.LOSS: "loss",
    Kind.FAULT: "fault",
}


def counters() -> str:
    """A table of counters for each place, then clock reasons and Xids."""
    parts = [f"## {owner.value}\n\n{_counters(at(owner))}" for owner in Owner]
    reasons = [(code(f"{row.bit:#x}"), code(row.name), row.severity.value, row.meaning) for row in CLOCK_REASONS]
    xids = [(row.number, row.meaning, row.fix) for row in XIDS]
    return (
        "Read before and after each size; a row of the result holds what moved. No movement is good, except of traffic; a counter that "
        "the machine does not have is absent. A finding compares a row only where at least as many events as in the column `least` "
        "were counted. [How to read it](../explanation/machine-beside-the-number.md).\n\n"
        + "".join(parts)
        + "## Clocks event reasons\n\nWhy a GPU's clocks are not higher, formerly called throttle reasons. `load` is normal for a GPU that "
        "works hard, and a sign only where the clock fell.\n\n"
        + table(("bit", "reason", "severity", "meaning"), reasons)
        + "## Xids\n\nThe driver's errors, from the kernel's log and NVML's events; an NVSwitch's are SXids. Numbers are those of "
        "[NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/).\n\n" + table(("number", "meaning", "what to do"), xids)
    )


def _counters(rows: tuple[Counter, ...]) -> str:
    shown = [(code(row.name), code(row.source), row.unit, _SAYS[row.kind], row.notable, row.meaning, _limit(row)) for row in rows]
    return table(("counter", "source", "unit", "says", "least", "meaning", "range"), shown)


def _limit(row: Counter) -> str:
    return f"{row.bits} bits" + (", stays at its largest value" if row.saturates else ", wraps" if row.bits == 32 else "")
