"""Backends beside each other as parts of a page: a plot and a table for each mode, or with `--rail`
for each backend.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element

from busbw.backends import text
from busbw.backends.types import BackendsResult, BackendTime
from busbw.core.result import Cell
from busbw.core.sizes import format_size
from busbw.ui.columns import Column
from busbw.ui.html.axes import SIZES, gb_tick, time_tick
from busbw.ui.html.element import tag
from busbw.ui.html.plot import Plot, PlotCurve, Point, figure, swatch
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table
from busbw.ui.number_formats import bandwidth_text, time_text


def parts(result: BackendsResult) -> list[Element]:
    """The whole result."""
    found = list(prose("\n".join([text.head(result), *text.foot(result)])))
    for mode in result.modes():
        found += _rails(result, mode) if result.rails else _backends(result, mode)
    return found


def _backends(result: BackendsResult, mode: str) -> list[Element]:
    """A curve and a column for each backend."""
    title = text.mode_text(result, mode)
    size, *others = text.columns(result, mode)
    columns = [size, *(_with_unit(one, result, result.backends) for one in others)]
    curves = {name: name for name in result.backends}
    plot = _plot(result, mode, f"{title[:1].upper()}{title[1:]}", curves)
    return [*plot, column_table(columns, result.rows, title)]


def _rails(result: BackendsResult, mode: str) -> list[Element]:
    """For each backend a curve and a line for each NIC."""
    found = []
    sizes = [format_size(row.size_bytes) for row in result.rows]
    for backend in text.rail_backends(result):
        title = f"{backend}, {text.mode_text(result, mode)}"
        curves = {rail.name: f"{backend}@{rail.name}" for rail in result.rails}
        nic, *others = text.rail_columns(result, backend, mode)
        shown = [*sizes, others[-1].title] if result.blocks else sizes
        columns = [nic, *(_with_unit(one, result, shown) for one in others)]
        found += _plot(result, mode, title, curves)
        found.append(column_table(columns, result.rails, title))
    return found


def _with_unit(column: Column, result: BackendsResult, titles: Sequence[str]) -> Column:
    """The column with the unit of the figures, if it is one of these."""
    if column.title not in titles:
        return column
    return replace(column, unit="GB/s" if result.blocks else "us")


def _plot(
    result: BackendsResult, mode: str, title: str, curves: Mapping[str, str]
) -> list[Element]:
    """The rate of blocks, or the time, over the size; `curves` has the backend of each name.
    Nothing, if none was measured.
    """
    points = {name: _points(result, backend, mode) for name, backend in curves.items()}
    names = [name for name in curves if points[name]]
    if not names:
        return []
    what = "block" if result.blocks else "message"
    plot = Plot(
        name=f"backends-{mode}-{curves[names[0]].partition('@')[0]}",
        title=f"{title}, over {what} size",
        description=f"Both axes are logarithmic. Curves: {', '.join(names)}.",
        unit="GB/s" if result.blocks else "time",
        curves=[PlotCurve(color, "out", points[name]) for color, name in enumerate(names)],
        guides=[],
        y_text=gb_tick if result.blocks else time_tick,
        x=replace(SIZES, title=f"{what} size"),
    )
    items = [tag("li", swatch(color, "out"), name) for color, name in enumerate(names)]
    return [tag("div", figure(plot, tag("ul", *items, class_="legend"), "h3"), class_="plots")]


def _points(result: BackendsResult, backend: str, mode: str) -> list[Point]:
    found = [(row.size_bytes, row.of(backend, mode)) for row in result.rows]
    return [
        _point(result, size_bytes, time.cell, time)
        for size_bytes, time in found
        if time is not None and time.cell is not None and not time.cell.wrong
    ]


def _point(result: BackendsResult, size_bytes: int, cell: Cell, time: BackendTime) -> Point:
    note = f"{time.backend}, {format_size(size_bytes)}: "
    if not result.blocks:
        note += time_text(cell.time_s)
        return Point(size_bytes, cell.time_s, note, cell.low_s, cell.high_s)
    moved = result.blocks * size_bytes
    low, high = (moved / limit_s if limit_s else None for limit_s in (cell.high_s, cell.low_s))
    return Point(size_bytes, cell.algbw, f"{note}{bandwidth_text(cell.algbw)} GB/s", low, high)
