"""A pattern as AIBooster's pattern.csv, byte for byte in its titles and layout, and as a CSV of
all fields.
"""

import csv
import io
from collections.abc import Callable, Iterable

from busbw.core.collectives import BY_NAME as COLLECTIVES
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.pattern import Pattern, PatternRow, Times
from busbw.core.pattern_weights import parts

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

    With `calls` a last column has how often a rank made it, on average over the ranks read, and at
    least 1.
    """
    lines: dict[tuple[str, ...], tuple[str, float]] = {}
    for row, part in zip(pattern.rows, parts(pattern), strict=True):
        if row.function not in COLLECTIVES:
            continue
        values = (
            COLLECTIVES[row.function].torch_name,
            row.count,
            row.dtype and DTYPES[row.dtype].torch,
            pattern.comm(row).ranks,
            row.algorithm,
            row.protocol,
            row.bytes,
        )
        texts = tuple(UNKNOWN if value is None else str(value) for value in values)
        time, number = lines.get(texts, (UNKNOWN, 0))
        if row.predicted_us is not None:
            time = repr(row.predicted_us)
        lines[texts] = (time, number + part * row.calls)
    table: list[tuple[object, ...]] = [(*TITLES, CALLS) if calls else TITLES]
    for texts, (time, number) in lines.items():
        count = (max(1, round(number)),) if calls else ()
        table.append((*texts, time, *count))
    return csv_text(table)


def left_out(pattern: Pattern) -> int:
    """How many rows `pattern_csv` leaves out."""
    return sum(row.function not in COLLECTIVES for row in pattern.rows)


def _times(name: str) -> tuple[tuple[str, Callable[[Pattern, PatternRow], object]], ...]:
    """The columns of `cpu_us` or `gpu_us`: a title, and a function for the value."""

    def value(field: str) -> Callable[[Pattern, PatternRow], object]:
        return lambda pattern, row: getattr(getattr(row, name), field, None)

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
    """A line for each row with all its fields; each kind of time in microseconds."""

    def values(row: PatternRow) -> list[object]:
        return [value(pattern, row) for _, value in FIELDS]

    titles = [name for name, _ in FIELDS]
    return csv_text([titles, *map(values, pattern.rows)])


def csv_text(lines: Iterable[Iterable[object]]) -> str:
    """The lines as CSV; None is an empty field."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()
