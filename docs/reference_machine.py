"""The reference page of host counters, clocks event reasons and Xids, from their tables."""

import re

from markdown_table import code, table

from busbw.core.counters import (
    NOTABLE_CREDIT_SHARE,
    Counter,
    CounterKind,
    Owner,
    counters_by_name,
    counters_of,
)
from busbw.core.sxids import sxids
from busbw.core.telemetry import all_clock_reasons
from busbw.core.watch_counters import levels, watched_by_name
from busbw.core.xids import xids
from busbw.watch.verdicts import PATTERNS

_KINDS = {
    CounterKind.TRAFFIC: "traffic",
    CounterKind.THROTTLE: "clocks reduced",
    CounterKind.CONGESTION: "congestion",
    CounterKind.LOSS: "loss",
    CounterKind.FAULT: "fault",
}


def counters() -> str:
    """A table of counters for each owner, then clock reasons, Xids and SXids."""
    parts = [f"## {owner.value}\n\n{_counters(counters_of(owner))}" for owner in Owner]
    reasons = [
        (code(f"{row.bit:#x}"), code(row.name), row.severity.value, row.meaning)
        for row in all_clock_reasons()
    ]
    return (
        "Read before and after each size; a row of the result has the counters that changed. A"
        " counter that the machine lacks is absent. Findings ignore increases below the column"
        " `least`. [How to read host counters](../explanation/machine-counters.md).\n\n"
        + "".join(parts)
        + "## Clocks event reasons\n\nWhy a GPU's clocks are reduced, formerly called throttle"
        " reasons. `load` is normal under load, and reported only if the clock fell.\n\n"
        + table(("bit", "reason", "severity", "meaning"), reasons)
        + _xids()
        + _sxids()
    )


def _xids() -> str:
    rows = [
        (row.number, row.meaning, row.effect.value, row.action, row.investigate)
        for row in xids().values()
    ]
    return (
        "## Xids\n\n"
        "The driver's errors of GPUs, from the kernel log and NVML events. Numbers and actions are"
        " those of [NVIDIA's catalog](https://docs.nvidia.com/deploy/xid-errors/). `needs` is what"
        " `busbw check` makes of them: `reboot`, `GPU reset` and `repair` fail until it is done;"
        " `restart the application` warns for a day; `watch` warns; `application` and `none` pass."
        " `by severity` is a GPU reset if the line says Fatal, and otherwise warns for a day, as"
        " the link works; `by action` is the action in the line. An Xid that is not here warns.\n\n"
        + table(("number", "meaning", "needs", "immediate action", "investigatory action"), rows)
    )


def _sxids() -> str:
    rows = [(row.number, row.meaning, row.effect.value) for row in sxids().values()]
    return (
        "## SXids\n\n"
        "The driver's errors of NVSwitches. Most lines say how serious the error is, and that"
        " counts: a `Correctable` one passes, a `Non-fatal` one warns for a day unless it needs"
        " nothing, a `Fatal` one fails until GPUs and NVSwitches are reset, or the host is"
        " restarted if the table says `reboot`. The table decides for lines without such a word."
        " Numbers and short names are those of NVIDIA's driver.\n\n"
        + table(("number", "meaning", "needs"), rows)
    )


def watched() -> str:
    """The patterns of `busbw watch`, then the counters and levels that it reads besides those of
    a run.
    """
    patterns = [
        (code(row.name), row.verdict.value, row.message, _named(row.reads)) for row in PATTERNS
    ]
    measured = counters_by_name().values()
    more = [row for row in watched_by_name().values() if row not in measured]
    parts = [
        f"## {owner.value}\n\n{_watched(rows)}"
        for owner in Owner
        if (rows := [row for row in more if row.owner is owner])
    ]
    return (
        "What `busbw watch` reads in addition to the [counters of a run](counters.md). A counter"
        " that a driver lacks is absent. [How to watch a"
        " network](../how-to/watch-a-network.md).\n\n"
        "## Patterns\n\n"
        "What a link's counters mean over about a second. A pattern whose counters cannot be read"
        " never matches.\n\n"
        + table(("pattern", "verdict", "reading", "read from"), patterns)
        + "".join(parts)
        + "## Levels\n\nCurrent values instead of counts.\n\n"
        + table(("level", "meaning"), [(code(name), meaning) for name, meaning in levels().items()])
    )


def _named(names: tuple[str, ...]) -> str:
    """The counters; those of the eight priorities as one."""
    shown = dict.fromkeys(re.sub(r"_prio\d_", "_prio*_", name) for name in names)
    return ", ".join(map(code, shown)) or "the list of links"


def _watched(rows: list[Counter]) -> str:
    """Rows of all priorities but the first are left out."""
    first = [row for row in rows if not re.search(r"_prio[1-7]_", row.name)]
    shown = [
        (
            code(row.name.replace("_prio0_", "_prio*_")),
            code(row.read_from),
            row.unit,
            _KINDS[row.kind],
            row.meaning.replace("priority 0", "a priority"),
            _limit(row),
        )
        for row in first
    ]
    return table(("counter", "source", "unit", "kind", "meaning", "range"), shown)


def _counters(rows: tuple[Counter, ...]) -> str:
    shown = [
        (
            code(row.name),
            code(row.read_from),
            row.unit,
            _KINDS[row.kind],
            f"{100 * NOTABLE_CREDIT_SHARE:.0f} % of the time" if row.ticks else row.notable,
            row.meaning,
            _limit(row),
        )
        for row in rows
    ]
    return table(("counter", "source", "unit", "kind", "least", "meaning", "range"), shown)


def _limit(row: Counter) -> str:
    return f"{row.bits} bits" + (
        ", saturates" if row.saturates else ", wraps" if row.bits == 32 else ""
    )
