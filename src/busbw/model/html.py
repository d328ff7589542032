"""Predictions and explanations as parts of a page: plots, bars and tables."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from xml.etree.ElementTree import Element

from busbw.core.sizes import counted, format_size
from busbw.model import bounds_text, explanation_text, prediction_text
from busbw.model.types import Explanation, Forecast, PatternPrediction, PredictedRow, Prediction
from busbw.ui.html.axes import gb_tick
from busbw.ui.html.bars import Bar, bar_chart
from busbw.ui.html.element import section, tag
from busbw.ui.html.plot import Plot, PlotCurve, Point, bandwidth_figure, swatch
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table
from busbw.ui.number_formats import bandwidth_text, time_text

COLORS = 8  # of style.css
BARS = 10
PATTERN_ORDER = (*prediction_text.PATTERN_DROP_ORDER, "algorithm", "calls", "within")
ROWS = 200  # of a table
BASIS = "from"  # the column that phones leave out last
SPREAD = 0.2  # of the distance of two sizes, over which the ranges at one size are spread


def prediction(answer: Prediction, prefix: str) -> list[Element]:
    """Busbw over size for each number of hosts, all times, and the bounds of each algorithm.

    The ids of plots begin with `prefix`.
    """
    about = answer.described
    links = "\n".join(explanation_text.links(about))
    parts = [*prose(prediction_text.title(answer)), *prose(links)]
    if answer.rows:
        columns, order = prediction_text.COLUMNS, (*prediction_text.DROP_ORDER, BASIS)
        table = column_table(columns, answer.rows, "Expected times", order)
        parts += [tag("div", *_plots(answer.rows, prefix), class_="plots"), table]
        parts += prose(prediction_text.meaning(answer.rows))
    parts += prose(prediction_text.crossings(answer))
    title = bounds_text.title(answer.bounds)
    levels, bounds_columns = answer.bounds.levels, bounds_text.columns(answer.bounds)
    bounds = section(
        title[0].upper() + title[1:],
        column_table(bounds_columns, levels, "Bounds", bounds_text.DROP_ORDER),
        *prose(bounds_text.meaning(answer.bounds, about.nccl)),
        level="h3",
    )
    return [*parts, bounds, *prose(explanation_text.notes(about, answer.notes))]


def _plots(rows: Sequence[Forecast], prefix: str) -> Iterator[Element]:
    """A plot for each eight numbers of hosts."""
    by_hosts: dict[int, list[Forecast]] = {}
    for row in rows:
        by_hosts.setdefault(row.hosts, []).append(row)
    series = list(by_hosts.values())
    for first in range(0, len(series), COLORS):
        yield _figure(series[first : first + COLORS], f"{prefix}-{first}")


def _figure(series: Sequence[Sequence[Forecast]], name: str) -> Element:
    sizes = sorted({row.size_bytes for rows in series for row in rows})
    step = min((larger / size for size, larger in pairwise(sizes)), default=1.0)
    curves = []
    for color, rows in enumerate(series):
        shift = step ** (SPREAD * color / len(series))
        curves.append(PlotCurve(color, "out", [_point(row, shift) for row in rows]))
    hosts = [counted(rows[0].hosts, "host") for rows in series]
    items = [(swatch(color, "out"), label) for color, label in enumerate(hosts)]
    coverage = f"{100 * series[0][0].coverage:.0f} % range"
    items.append((swatch(None, "interval"), coverage))
    legend = tag("ul", *(tag("li", sample, label) for sample, label in items), class_="legend")
    plot = Plot(
        name=name,
        title="Expected bus bandwidth over message size",
        description=f"{', '.join(hosts)}. The table has every value.",
        unit="busbw, GB/s",
        curves=curves,
        guides=[],
        y_text=gb_tick,
    )
    return bandwidth_figure(plot, legend, "h3")


def _point(row: Forecast, shift: float) -> Point:
    note = (
        f"{counted(row.hosts, 'host')}, {format_size(row.size_bytes)}: {time_text(row.time_s)},"
        f" busbw {bandwidth_text(row.busbw)} GB/s, {bandwidth_text(row.low)} to"
        f" {bandwidth_text(row.high)}"
    )
    return Point(row.size_bytes * shift, row.busbw, note, row.low, row.high)


def pattern_prediction(answer: PatternPrediction) -> list[Element]:
    """The rows of an application that take longest as bars, and all of them."""
    rows = prediction_text.longest_first(answer)
    parts = [
        *prose(prediction_text.pattern_head(answer)),
        *prose(prediction_text.pattern_foot(answer)),
    ]
    if not rows:
        return parts
    columns, order = prediction_text.pattern_columns(rows), PATTERN_ORDER
    parts.append(bar_chart("Longest rows, all their calls", list(map(_bar, rows[:BARS]))))
    parts.append(column_table(columns, rows[:ROWS], "Rows", order))
    if len(rows) > ROWS:
        hidden = counted(len(rows) - ROWS, "row")
        parts.append(tag("p", f"{hidden} that take less are not shown.", class_="note"))
    return parts


def _bar(row: PredictedRow) -> Bar:
    return Bar(f"{row.function} {format_size(row.bytes)}", [row.total_s], time_text(row.total_s))


def explanation(answer: Explanation) -> list[Element]:
    """Every algorithm that a measurement was compared with, and the load of each link."""
    columns, order = explanation_text.columns(answer), explanation_text.DROP_ORDER
    table = column_table(columns, answer.judged, "Algorithms", order)
    parts = [*prose(explanation_text.head(answer)), table, *prose(explanation_text.MEANING)]
    foot = prose(explanation_text.load_foot(answer))
    if not answer.loads:
        return [*parts, *foot]
    load_columns, order = explanation_text.LOAD_COLUMNS, explanation_text.LOAD_DROP_ORDER
    loads = column_table(load_columns, answer.loads, "Links", order)
    title = explanation_text.load_title(answer)
    return [*parts, section(title, loads, *foot, level="h3")]
