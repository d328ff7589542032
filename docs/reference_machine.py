"""The reference page of host counters, clocks event reasons and Xids, from their tables."""

from markdown_table import code, table

from busbw.core.counters import Counter, Kind, Owner, at
from busbw.core.gpu_events import CLOCK_REASONS, XIDS

_KINDS = {
    Kind.TRAFFIC: "traffic",
    Kind.THROTTLE: "clocks reduced",
    Kind.CONGESTION: "congestion",
    Kind.LOSS: "loss",
    Kind.FAULT: "fault",
}


def counters() -> str:
    """A table of counters for each owner, then clock reasons and Xids."""
    parts = [f"## {owner.value}\n\n{_counters(at(owner))}" for owner in Owner]
    reasons = [(code(f"{row.bit:#x}"), code(row.name), row.severity.value, row.meaning) for row in CLOCK_REASONS]
    xids = [(row.number, row.meaning, row.fix) for row in XIDS]
    return (
        "Read before and after each size; a row of the result has the counters that changed. A counter that the machine lacks is absent. "
        "Findings ignore increases below the column `least`. "
        "[How to read host counters](../explanation/machine-counters.md).\n\n"
        + "".join(parts)
        + "## Clocks event reasons\n\nWhy a GPU's clocks are reduced, formerly called throttle reasons. `load` is normal under load, "
        "and reported only if the clock fell.\n\n"
        + table(("bit", "reason", "severity", "meaning"), reasons)
        + "## Xids\n\nThe driver's errors, from the kernel log and NVML events; those of an NVSwitch are SXids. Numbers are those of "
        "[NVIDIA's catalog](https://docs.nvidia.com/deploy/xid-errors/).\n\n" + table(("number", "meaning", "remedy"), xids)
    )


def _counters(rows: tuple[Counter, ...]) -> str:
    shown = [(code(row.name), code(row.source), row.unit, _KINDS[row.kind], row.notable, row.meaning, _limit(row)) for row in rows]
    return table(("counter", "source", "unit", "kind", "least", "meaning", "range"), shown)


def _limit(row: Counter) -> str:
    return f"{row.bits} bits" + (", saturates" if row.saturates else ", wraps" if row.bits == 32 else "")
