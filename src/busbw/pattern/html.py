"""Patterns and replays as parts of a page: bars of the largest shares, the table, and totals."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.core.pattern import Pattern
from busbw.core.sizes import counted, format_size
from busbw.pattern import serving_text, text
from busbw.pattern.lateness import html as lateness_html
from busbw.pattern.replay import text as replay_text
from busbw.pattern.replay.kind import ReplayResult
from busbw.pattern.replay.types import ReplayedRow
from busbw.ui.html.bars import Bar, bar_chart
from busbw.ui.html.element import tag
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table
from busbw.ui.number_formats import percent_text, time_text

BARS = 10
ROWS = 200  # of a table


def pattern(record: Pattern, prefix: str) -> list[Element]:
    """What an application sends. The ids of its plots begin with `prefix`."""
    lines = text.sorted_lines(record)
    bars = list(map(_bar, lines[:BARS]))
    title = f"Largest shares of {text.kind(record).name}"
    table = column_table(text.shown_columns(lines), lines[:ROWS], "Rows", text.DROP_ORDER)
    return [
        *prose(text.overview(record)),
        *_steps(record),
        *prose(text.order(record)),
        *prose(text.foot(record)),
        *lateness_html.steps(record.header.lateness, prefix),
        *([bar_chart(title, bars)] if any(line.weight for line in lines) else []),
        table,
        *_hidden(lines),
    ]


def _steps(record: Pattern) -> list[Element]:
    """The steps of an inference server."""
    serving = record.header.serving
    if serving is None:
        return []
    lines = serving_text.call_lines(serving)
    phases, calls = serving_text.PHASES, serving_text.CALLS
    return [
        *prose(serving_text.head(serving)),
        column_table(phases, serving.phases, "Phases"),
        *([column_table(calls, lines, "Calls of a step")] if lines else []),
        *prose(serving_text.foot(serving, record.header.gpu_time)),
    ]


def _bar(line: text.PatternLine) -> Bar:
    size = text.size_text(line)
    facts = [line.kernel or text.function(line), size.removeprefix("-"), line.row.dtype]
    label = " ".join(filter(None, facts))
    figure = f"{percent_text(line.weight, line.total)} %, {counted(line.row.calls, 'call')}"
    return Bar(label, [line.weight], figure)


def replay(result: ReplayResult) -> list[Element]:
    """How long the calls of a pattern took."""
    rows = replay_text.longest_first(result.replay)
    timed = [row for row in rows if row.total_s][:BARS]
    parts = [*prose(replay_text.header(result)), *prose(replay_text.totals(result))]
    if timed:
        parts.append(bar_chart("Longest rows, all their calls", list(map(_replayed_bar, timed))))
    if rows:
        columns = replay_text.shown_columns(result.replay)
        parts.append(column_table(columns, rows[:ROWS], "Rows", replay_text.DROP_ORDER))
    return [*parts, *_hidden(rows)]


def _replayed_bar(row: ReplayedRow) -> Bar:
    total_s = row.total_s or 0.0
    return Bar(f"{row.row.function} {format_size(row.row.bytes)}", [total_s], time_text(total_s))


def _hidden(rows: Sequence[object]) -> list[Element]:
    if len(rows) <= ROWS:
        return []
    hidden = counted(len(rows) - ROWS, "row")
    return [tag("p", f"{hidden} with smaller shares are not shown.", class_="note")]
