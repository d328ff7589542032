"""A pattern as people read it: what took most time or moved most bytes first, then totals, and
what is missing.

A pattern as AIBooster's pattern.csv, byte for byte in its titles and layout, and as a CSV of
all fields.
"""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.pattern import Pattern, PatternRow, Times
from busbw.core.pattern_weights import average, coverage, parts, weights
from busbw.core.sizes import counted, format_size
from busbw.pattern.replay.text import ROWS, more
from busbw.ui.number_formats import (
    Column,
    aligned,
    known,
    peers_text,
    percent_text,
    time_text,
    wrapped,
)

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


TITLES = (
    "routine",
    "num_samples",
    "datatype",
    "nranks",
    "ALGO",
    "PROTOCOL",
    "TOTALBYTES",
    "TIME_FOR_EACH_NCCL_COMM_CALL_MICROSEC",
)
CALLS = "calls"
UNKNOWN = "?"


def pattern_csv(pattern: Pattern, *, calls: bool = False) -> str:
    """A line for each distinct collective call. Send and recv have no place in this format.

    With `calls` a last column says how often a rank made it, on average over the ranks read, and at
    least 1.
    """
    lines: dict[tuple[str, ...], tuple[str, float]] = {}
    for row, part in zip(pattern.rows, parts(pattern), strict=True):
        if row.function in COLLECTIVES:
            known = (
                COLLECTIVES[row.function].torch_name,
                row.count,
                row.dtype and DTYPES[row.dtype].torch,
                pattern.comm(row).ranks,
                row.algorithm,
                row.protocol,
                row.bytes,
            )
            name = tuple(UNKNOWN if value is None else str(value) for value in known)
            time, before = lines.get(name, (UNKNOWN, 0))
            lines[name] = (
                time if row.predicted_us is None else repr(row.predicted_us),
                before + part * row.calls,
            )
    head = (*TITLES, CALLS) if calls else TITLES
    return _text(
        [
            head,
            *(
                (*name, time, *([max(1, round(number))] if calls else []))
                for name, (time, number) in lines.items()
            ),
        ]
    )


def left_out(pattern: Pattern) -> int:
    """How many rows `pattern_csv` leaves out."""
    return sum(row.function not in COLLECTIVES for row in pattern.rows)


def _times(name: str) -> tuple[tuple[str, Callable[[Pattern, PatternRow], object]], ...]:
    def value(field: str) -> Callable[[Pattern, PatternRow], object]:
        return lambda pattern, row: (
            None if (times := getattr(row, name)) is None else getattr(times, field)
        )

    kind = name.removesuffix("_us")
    units = {field: "" if field == "n" else "_us" for field in Times.__struct_fields__}
    return tuple((f"{kind}_{field}{unit}", value(field)) for field, unit in units.items())


FIELDS: tuple[tuple[str, Callable[[Pattern, PatternRow], object]], ...] = (
    ("comm", lambda pattern, row: row.comm),
    ("comm_name", lambda pattern, row: pattern.comm(row).name),
    ("ranks", lambda pattern, row: pattern.comm(row).ranks or None),
    *(
        (name, lambda pattern, row, name=name: getattr(row, name))
        for name in (
            "function",
            "bytes",
            "calls",
            "count",
            "dtype",
            "op",
            "root",
            "rank",
            "peer",
            "algorithm",
            "protocol",
            "channels",
            "first_us",
            "last_us",
            "predicted_us",
        )
    ),
    *_times("cpu_us"),
    *_times("gpu_us"),
)


def table_csv(pattern: Pattern) -> str:
    """A line for each row with all its fields; times of each kind in columns of their own, in
    microseconds.
    """
    return _text(
        [
            [name for name, _ in FIELDS],
            *([value(pattern, row) for _, value in FIELDS] for row in pattern.rows),
        ]
    )


def _text(lines: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        ["" if value is None else value for value in line] for line in lines
    )
    return out.getvalue()
