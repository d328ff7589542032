"""The links of a watched run for people, under the table of the sweep.

There is a line for each size, host and kind of link.
"""

import itertools

from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.measure.link_traffic import RowTraffic, loads
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import text_or_unknown, time_text

# Other columns are shown only if a line has a value.
ALWAYS = ("size", "host", "links", "sent", "received")
DROP_ORDER = ("ECN", "CNP out", "CNP in", "received", "pause out", "pause in", "drops", "troubled")
MAX_LINES = 200
MAX_NAMED = 2  # links of a line
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def columns() -> list[Column]:
    """The columns; their values take a RowTraffic."""
    return [
        Column(title="size", value=lambda load: format_size(load.row.size_bytes)),
        Column(title="host", value=lambda load: load.host, left=True),
        Column(title="links", value=_links, left=True),
        Column(title="sent", value=lambda load: text_or_unknown(load.all.sent, bytes_text)),
        Column(title="of least", value=ratio),
        Column(title="received", value=lambda load: text_or_unknown(load.all.received, bytes_text)),
        Column(title="TCP resent", value=lambda load: text_or_unknown(load.resent, "{:,}".format)),
        Column(title="lost", value=lambda load: text_or_unknown(load.all.lost, "{:,}".format)),
        Column(title="drops", value=lambda load: text_or_unknown(load.all.dropped, "{:,}".format)),
        Column(
            title="pause in", value=lambda load: text_or_unknown(load.all.pause_in_s, pause_text)
        ),
        Column(
            title="pause out", value=lambda load: text_or_unknown(load.all.pause_out_s, pause_text)
        ),
        Column(title="CNP in", value=lambda load: text_or_unknown(load.all.cnp_in, "{:,}".format)),
        Column(
            title="CNP out", value=lambda load: text_or_unknown(load.all.cnp_out, "{:,}".format)
        ),
        Column(title="ECN", value=lambda load: text_or_unknown(load.all.ecn, "{:,}".format)),
        Column(title="troubled", value=_troubled, left=True),
    ]


def text(result: Result, width: int | None = None) -> str:
    """The whole table, '' for a run that was not watched."""
    if not _watched(result):
        return ""
    lines = loads(result)
    if not lines:
        return "links: none carried data of this run\n"
    shown = [column for column in columns() if column.title in ALWAYS or _has_values(column, lines)]
    note = (
        "what links carried while each size was measured, its checks and untimed operations"
        " included"
    )
    if any(load.least for load in lines):
        note += "; least = what the operations must send from a host, or from its GPUs"
    table = aligned(shown, lines[:MAX_LINES], width, DROP_ORDER)
    if len(lines) > MAX_LINES:
        table += f"... {len(lines) - MAX_LINES} more lines: --json FILE has them all\n"
    return wrapped(f"{note}\n", width) + table


def _watched(result: Result) -> bool:
    """Whether any row has what links carried."""
    changes = itertools.chain.from_iterable(row.machine or [] for row in result.rows)
    return any(change.links for change in changes)


def _has_values(column: Column, lines: list[RowTraffic]) -> bool:
    return any(column.value(load) not in ("-", "") for load in lines)


def _links(load: RowTraffic) -> str:
    if load.all.name:
        return load.all.name
    return f"{load.links} ports" if load.kind == "network" else f"{load.links} GPUs {load.kind}"


def _troubled(load: RowTraffic) -> str:
    more = " ..." if len(load.troubled) > MAX_NAMED else ""
    return ", ".join(load.troubled[:MAX_NAMED]) + more


def ratio(load: RowTraffic) -> str:
    """`1.05`: bytes sent over those that must be sent."""
    if not load.least or load.all.sent is None:
        return "-"
    value = load.all.sent / load.least
    return f"{value:.2f}" if value < 99.995 else f"{value:.0f}"


def bytes_text(count: int) -> str:
    """`12.3 MB`, in powers of 1000 and three digits."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = f"{value:.0f}" if unit == 0 or value >= 99.95 else f"{value:.3g}"
    return f"{digits} {UNITS[unit]}"


def pause_text(seconds: float) -> str:
    """`2.500 ms`; `0` without a pause."""
    return time_text(seconds) if seconds else "0"
