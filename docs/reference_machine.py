"""The reference page of host counters, clocks event reasons and Xids, from their tables."""

import re

from markdown_table import code, table

from busbw.core.counters import COUNTERS, Counter, Kind, Owner, at
from busbw.core.gpu_events import CLOCK_REASONS, XIDS
from busbw.core.watched import BY_NAME, LEVELS
from busbw.watch.verdicts import PATTERNS

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


def watched() -> str:
    """The patterns of `busbw watch`, then the counters and levels that it reads besides those of a run."""
    patterns = [(code(row.name), row.verdict.value, row.message, _named(row.reads)) for row in PATTERNS]
    more = [row for row in BY_NAME.values() if row not in COUNTERS]
    parts = [f"## {owner.value}\n\n{_watched(rows)}" for owner in Owner if (rows := [row for row in more if row.owner is owner])]
    return (
        "What `busbw watch` reads in addition to the [counters of a run](counters.md). "
        "A counter that a driver lacks is absent. "
        "[How to watch a network](../how-to/watch-a-network.md).\n\n"
        "## Patterns\n\nWhat a link's counters mean over about a second. A pattern whose counters cannot be read never matches.\n\n"
        + table(("pattern", "verdict", "reading", "read from"), patterns)
        + "".join(parts)
        + "## Levels\n\nCurrent values instead of counts.\n\n"
        + table(("level", "meaning"), [(code(name), meaning) for name, meaning in LEVELS.items()])
    )


def _named(names: tuple[str, ...]) -> str:
    """The counters; those of the eight priorities as one."""
    shown = dict.fromkeys(re.sub(r"_prio\d_", "_prio*_", name) for name in names)
    return ", ".join(map(code, shown)) or "the list of links"


def _watched(rows: list[Counter]) -> str:
    """Rows of all priorities but the first are left out."""
    first = [row for row in rows if not re.search(r"_prio[1-7]_", row.name)]
    shown = [
        (code(row.name.replace("_prio0_", "_prio*_")), code(row.source), row.unit, _KINDS[row.kind],
         row.meaning.replace("priority 0", "a priority"), _limit(row))
        for row in first
    ]  # fmt: skip
    return table(("counter", "source", "unit", "kind", "meaning", "range"), shown)


def _counters(rows: tuple[Counter, ...]) -> str:
    shown = [(code(row.name), code(row.source), row.unit, _KINDS[row.kind], row.notable, row.meaning, _limit(row)) for row in rows]
    return table(("counter", "source", "unit", "kind", "least", "meaning", "range"), shown)


def _limit(row: Counter) -> str:
    return f"{row.bits} bits" + (", saturates" if row.saturates else ", wraps" if row.bits == 32 else "")
