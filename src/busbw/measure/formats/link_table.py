"""The links of a watched run for people: a line for each size, host and kind of link, under the
table of the sweep.
"""

from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.measure.link_sampler import Load, loads
from busbw.ui.number_formats import Column, aligned, known, time_text, wrapped

# other columns are shown if any line has a value
ALWAYS = ("size", "host", "links", "sent", "received")
DROP_ORDER = ("ECN", "CNP out", "CNP in", "received", "pause out", "pause in", "drops", "troubled")
MOST = 200  # lines
NAMED = 2  # links of a line
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def columns() -> list[Column]:
    """Their values take a Load."""
    return [
        Column(title="size", value=lambda load: format_size(load.row.size_bytes)),
        Column(title="host", value=lambda load: load.host, left=True),
        Column(title="links", value=_links, left=True),
        Column(title="sent", value=lambda load: known(load.all.sent, bytes_text)),
        Column(title="of least", value=lambda load: ratio(load)),
        Column(title="received", value=lambda load: known(load.all.received, bytes_text)),
        Column(title="TCP resent", value=lambda load: known(load.resent, "{:,}".format)),
        Column(title="lost", value=lambda load: known(load.all.lost, "{:,}".format)),
        Column(title="drops", value=lambda load: known(load.all.dropped, "{:,}".format)),
        Column(title="pause in", value=lambda load: known(load.all.pause_in_s, pause_text)),
        Column(title="pause out", value=lambda load: known(load.all.pause_out_s, pause_text)),
        Column(title="CNP in", value=lambda load: known(load.all.cnp_in, "{:,}".format)),
        Column(title="CNP out", value=lambda load: known(load.all.cnp_out, "{:,}".format)),
        Column(title="ECN", value=lambda load: known(load.all.ecn, "{:,}".format)),
        Column(
            title="troubled",
            value=lambda load: (
                ", ".join(load.troubled[:NAMED]) + (" ..." if len(load.troubled) > NAMED else "")
            ),
            left=True,
        ),
    ]


def text(result: Result, width: int | None = None) -> str:
    """The whole table, '' for a run that was not watched."""
    if not any(change.links for row in result.rows for change in row.machine or []):
        return ""
    lines = loads(result)
    if not lines:
        return "links: none carried data of this run\n"
    shown = [
        column
        for column in columns()
        if column.title in ALWAYS or any(column.value(load) not in ("-", "") for load in lines)
    ]
    more = (
        f"... {len(lines) - MOST} more lines: --json FILE has them all\n"
        if len(lines) > MOST
        else ""
    )
    note = (
        "what links carried while each size was measured, its checks and untimed operations"
        " included"
    )
    note += (
        "; least = what the operations must send from a host, or from its GPUs\n"
        if any(load.least for load in lines)
        else "\n"
    )
    return wrapped(note, width) + aligned(shown, lines[:MOST], width, DROP_ORDER) + more


def _links(load: Load) -> str:
    return (
        load.all.name
        or f"{load.links} {'ports' if load.kind == 'network' else f'GPUs {load.kind}'}"
    )


def ratio(load: Load) -> str:
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
    return (
        f"{value:.0f} {UNITS[unit]}"
        if unit == 0 or value >= 99.95
        else f"{value:.3g} {UNITS[unit]}"
    )


def pause_text(seconds: float) -> str:
    """`0`, `2.500 ms`."""
    return time_text(seconds) if seconds else "0"
