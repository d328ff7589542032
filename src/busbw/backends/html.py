"""Backends beside each other as parts of a page: a plot and a table for each mode."""

from xml.etree.ElementTree import Element

from busbw.backends import text
from busbw.backends.types import BackendsResult
from busbw.ui.html.axes import time_tick
from busbw.ui.html.element import tag
from busbw.ui.html.plot import Plot, PlotCurve, Point, figure, swatch
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table
from busbw.ui.number_formats import time_text


def parts(result: BackendsResult) -> list[Element]:
    """The whole result."""
    found = list(prose("\n".join([text.head(result), *text.foot(result)])))
    for mode in result.modes():
        found += [_plot(result, mode), column_table(text.columns(result, mode), result.rows, mode)]
    return found


def _plot(result: BackendsResult, mode: str) -> Element:
    """Time over size, a curve for each backend."""
    names = [name for name in result.backends if _points(result, name, mode)]
    curves = [
        PlotCurve(color, "time", _points(result, name, mode)) for color, name in enumerate(names)
    ]
    title = f"{text.mode_text(result, mode).capitalize()}, over message size"
    plot = Plot(
        name=f"backends-{mode}",
        title=title,
        description=f"Both axes are logarithmic. Backends: {', '.join(names)}.",
        unit="time",
        curves=curves,
        guides=[],
        y_text=time_tick,
    )
    items = [tag("li", swatch(color, "time"), name) for color, name in enumerate(names)]
    return figure(plot, tag("ul", *items, class_="legend"), "h3")


def _points(result: BackendsResult, backend: str, mode: str) -> list[Point]:
    points = []
    for row in result.rows:
        time = row.of(backend, mode)
        if time is not None and time.cell is not None and not time.cell.wrong:
            cell = time.cell
            note = f"{backend}, {row.size_bytes} B: {time_text(cell.time_s)}"
            points.append(Point(row.size_bytes, cell.time_s, note, cell.low_s, cell.high_s))
    return points
