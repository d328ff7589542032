"""A pattern as people read it: what took most time or moved most bytes first, then totals, and
what is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.pattern import Pattern, PatternRow, Times
from busbw.core.pattern_coverage import average, coverage
from busbw.core.pattern_weights import parts, weights
from busbw.core.sizes import counted, format_size
from busbw.pattern.replay.text import ROWS, more
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import known, peers_text, percent_text, time_text

NARROWED = 80
DROP_ORDER = ("least", "protocol", "group", "predicted", "op", "algorithm", "peers", "median")
_OPTIONAL = {
    "type",
    "op",
    "group",
    "algorithm",
    "protocol",
    "peers",
    "predicted",
    "median",
    "least",
}


@dataclass(frozen=True, slots=True)
class _Line:
    pattern: Pattern
    row: PatternRow
    times: Times | None
    weight: float
    whole: float


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the table is sorted by: a kind of time, or bytes.

    `meaning` goes on after "average of all ranks".
    """

    name: str
    field: str
    meaning: str


KINDS = (
    _Kind("GPU time", "gpu_us", ", a call's being the shortest duration on the GPU of any rank"),
    _Kind("CPU time", "cpu_us", ", by the host's clock"),
    _Kind("bytes", "", "; the calls are not timed"),
)


def kind(pattern: Pattern) -> _Kind:
    """The GPU's time if any call has one, else the host's, else bytes."""
    return next(
        (
            one
            for one in KINDS
            if one.field and any(getattr(row, one.field) for row in pattern.rows)
        ),
        KINDS[-1],
    )


def _function(line: _Line) -> str:
    return (
        COLLECTIVES[line.row.function].name
        if line.row.function in COLLECTIVES
        else line.row.function
    )


def _time(field: str) -> Callable[[_Line], str]:
    return lambda line: "-" if line.times is None else time_text(getattr(line.times, field) * 1e-6)


COLUMNS: tuple[Column, ...] = (
    Column(title="function", value=_function, left=True),
    Column(title="bytes", value=lambda line: format_size(line.row.bytes)),
    Column(title="type", value=lambda line: line.row.dtype or "-", left=True),
    Column(title="op", value=lambda line: line.row.op or "-", left=True),
    Column(title="peers", value=lambda line: peers_text(line.row), left=True),
    Column(title="ranks", value=lambda line: line.pattern.comm(line.row).ranks or "-"),
    Column(
        title="group", value=lambda line: line.pattern.comm(line.row).name[:12] or "-", left=True
    ),
    Column(title="algorithm", value=lambda line: line.row.algorithm or "-", left=True),
    Column(title="protocol", value=lambda line: line.row.protocol or "-", left=True),
    Column(title="calls", value=lambda line: line.row.calls),
    Column(
        title="predicted",
        value=lambda line: known(line.row.predicted_us, lambda time: time_text(time * 1e-6)),
    ),
    Column(title="least", value=_time("least")),
    Column(title="median", value=_time("median")),
    Column(title="share", unit="%", value=lambda line: percent_text(line.weight, line.whole)),
)


def table(pattern: Pattern, width: int | None = None, most: int = ROWS) -> str:
    """The histogram sorted by share of time, totals, and what the record lacks; at most `width`
    characters wide, 80 without one.

    It has the `most` rows with the largest share.
    """
    limit = width or NARROWED
    chosen = kind(pattern)
    lines = sorted(_lines(pattern, chosen), key=lambda line: (-line.weight, line.row.id))
    shown = [
        column
        for column in COLUMNS
        if column.title not in _OPTIONAL or any(column.text(line) != "-" for line in lines)
    ]
    rest = more(
        lines[most:], sum(line.weight for line in lines[most:]), sum(line.weight for line in lines)
    )
    meaning = "" if chosen.field and len(pattern.header.ranks) == 1 else chosen.meaning
    head = wrapped(
        f"{_title(pattern)}\nsorted by share of {chosen.name} ({average(pattern)}{meaning})\n",
        limit,
    )
    table = aligned(shown, lines[:most], limit, DROP_ORDER)
    foot = wrapped(_totals(pattern, chosen) + _remarks(pattern), limit)
    return f"{head}\n{table}{rest}\n{foot}"


def _lines(pattern: Pattern, chosen: _Kind) -> list[_Line]:
    weighed = weights(pattern) if chosen.field else parts(pattern)
    added = [_part(row, chosen) * weight for row, weight in zip(pattern.rows, weighed, strict=True)]
    return [
        _Line(pattern, row, getattr(row, chosen.field) if chosen.field else None, one, sum(added))
        for row, one in zip(pattern.rows, added, strict=True)
    ]


def _part(row: PatternRow, chosen: _Kind) -> float:
    """Time of all calls, also of those that were not timed; else bytes."""
    if not chosen.field:
        return float(row.bytes * row.calls)
    times = getattr(row, chosen.field)
    return times.total * row.calls / times.n if times else 0.0


def _title(pattern: Pattern) -> str:
    header = pattern.header
    facts = [
        f"from {header.source}" if header.source else "",
        counted(header.world, "rank") if header.world else "",
        counted(len(header.hosts), "host") if header.hosts else "",
        f"NCCL {header.nccl}" if header.nccl else "",
    ]
    return ", ".join(filter(None, facts)) or "from an unknown source"


def _totals(pattern: Pattern, chosen: _Kind) -> str:
    calls = sum(row.calls for row in pattern.rows)
    size = sum(row.calls * row.bytes for row in pattern.rows)
    counts = (
        counted(calls, "call"),
        counted(len(pattern.rows), "row"),
        counted(len(pattern.comms), "communicator"),
    )
    text = "{} in {} over {}, ".format(*counts) + format_size(size)
    if chosen.field:
        timed = [
            (times, weight)
            for row, weight in zip(pattern.rows, weights(pattern), strict=True)
            if (times := getattr(row, chosen.field))
        ]
        text += (
            f"; {chosen.name}"
            f" {time_text(sum(times.total * weight for times, weight in timed) * 1e-6)}"
        )
        number = sum(times.n for times, _ in timed)
        text += f" of {counted(number, 'call')}" if number < calls else ""
    if pattern.header.seconds:
        text += f", over {time_text(pattern.header.seconds)}"
    skews = [call.skew_us for call in pattern.calls if call.skew_us is not None]
    text += (
        f"\n"
        f"skew between ranks: {time_text(sum(skews) * 1e-6)} in total,"
        f" {time_text(max(skews) * 1e-6)} at most"
        if skews
        else ""
    )
    return text + "\n"


def _remarks(pattern: Pattern) -> str:
    header = pattern.header
    text = "" if pattern.ordered else "the order of the calls is unknown\n"
    text += (
        f"{counted(header.dropped, 'call')} dropped by what recorded them\n"
        if header.dropped
        else ""
    )
    text += f"{counted(header.skipped, 'record')} could not be read\n" if header.skipped else ""
    return text + "".join(f"note: {note}\n" for note in [*header.notes, *coverage(pattern)])
