"""Printing what an application sent: a part of `busbw show`."""

from collections.abc import Callable
from dataclasses import dataclass

from busbw.cli.streams import print_err
from busbw.cli.terminal import width
from busbw.core.errors import UsageError
from busbw.core.pattern import Pattern
from busbw.core.pattern_weights import coverage
from busbw.core.sizes import counted
from busbw.pattern import csv, pattern_lines, perfetto, serving_csv
from busbw.pattern import text as view

PATTERN_CSV = "pattern-csv"


@dataclass(frozen=True, kw_only=True)
class PatternSelection:
    """What of a pattern is printed: the `rows` with the largest share in the table, and in
    pattern-csv how often a rank made each call, if `calls` is set.
    """

    rows: int
    calls: bool


FORMATS: dict[str, Callable[[Pattern, PatternSelection], str | bytes]] = {
    "table": lambda record, shown: view.table(record, width(), shown.rows),
    "csv": lambda record, _: csv.table_csv(record),
    PATTERN_CSV: lambda record, shown: csv.pattern_csv(record, calls=shown.calls),
    "steps-csv": lambda record, _: serving_csv.table(record),
    "jsonl": lambda record, _: b"".join(pattern_lines.lines(record)),
    "perfetto": lambda record, _: perfetto.trace(record),
}


def pattern_text(
    record: Pattern, format_name: str, shown: PatternSelection, source: str
) -> str | bytes:
    """The pattern in a format; notes on what is missing go to stderr, unless the table has them.

    UsageError, which names `source`, for a format of sweeps.
    """
    if format_name not in FORMATS:
        raise UsageError(
            f"{source}: a pattern, which has no format '{format_name}'",
            f"use --format {', '.join(FORMATS)}",
        )
    hidden = csv.left_out(record) if format_name == PATTERN_CSV else 0
    if hidden:
        print_err(f"note: {counted(hidden, 'row')} of send and recv left out: pattern.csv has none")
    if format_name != "table":
        for note in [*record.header.notes, *coverage(record)]:
            print_err(f"note: {note}")
    return FORMATS[format_name](record, shown)
