"""The two plots of a report: busbw over size with its bounds, and time over size with what a launch costs."""

from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import IN_PLACE, OUT_OF_PLACE, Figure
from busbw.core.result import Cell
from busbw.core.sizes import format_size
from busbw.views.html.plot import NARROW, WIDE, Curve, Plot, Point, Rule, draw, swatch
from busbw.views.html.sheet import Sheet, drawable, nominal, series
from busbw.views.html.tree import tag
from busbw.views.words import bandwidth_text, time_text

KINDS = {OUT_OF_PLACE: "out", IN_PLACE: "in"}
ALIKE = 0.01  # bounds that differ by less are one line


def plots(sheets: Sequence[Sheet]) -> list[Element]:
    """Both figures with their legends."""
    return [_figure(_bandwidth(sheets), sheets), _figure(_time(sheets), sheets)]


def _figure(plot: Plot, sheets: Sequence[Sheet]) -> Element:
    if not plot.curves:
        return tag("figure", tag("figcaption", tag("h3", plot.title)), tag("p", "No row has a figure to draw.", class_="note"))
    caption = tag("figcaption", tag("h3", plot.title), _legend(plot, sheets))
    return tag("figure", caption, draw(plot, WIDE), draw(plot, NARROW))


def _bandwidth(sheets: Sequence[Sheet]) -> Plot:
    curves = [
        Curve(sheet.index, KINDS[key[-1]], points)
        for sheet in sheets
        for key, line in series(sheet.result).items()
        if (points := [_bandwidth_point(figure) for figure in line if drawable(figure.cell.busbw)])
    ]
    said = _said(curves, bandwidth_text, " GB/s")
    return Plot("busbw", "Bus bandwidth over message size", said, "busbw, GB/s", curves, _bounds(sheets), _gb_tick)


def _time(sheets: Sequence[Sheet]) -> Plot:
    curves = []
    for sheet in sheets:
        for key, line in series(sheet.result).items():
            curves.append(Curve(sheet.index, KINDS[key[-1]], [_time_point(figure) for figure in line]))
            launches = [Point(figure.row.size_bytes, cost, "") for figure in line if drawable(cost := figure.cell.launch_s or 0.0)]
            if launches:
                curves.append(Curve(sheet.index, "launch", launches))
    return Plot("time", "Time over message size", _said(curves, time_text, ""), "time", curves, [], _time_tick)


def _interval(cell: Cell) -> tuple[float, float] | None:
    if cell.low_s is None or cell.high_s is None or not (drawable(cell.low_s) and drawable(cell.high_s)):
        return None
    return cell.low_s, cell.high_s


def _note(figure: Figure) -> str:
    return (
        f"{format_size(figure.row.size_bytes)} {figure.row.dtype} {figure.placement}: "
        f"{time_text(figure.cell.time_s)}, busbw {bandwidth_text(figure.cell.busbw)} GB/s"
    )


def _time_point(figure: Figure) -> Point:
    return Point(figure.row.size_bytes, figure.cell.time_s, _note(figure), *(_interval(figure.cell) or ()))


def _bandwidth_point(figure: Figure) -> Point:
    """busbw is bytes over time, so the interval of the time gives that of busbw, ends exchanged."""
    cell, interval = figure.cell, _interval(figure.cell)
    moved = cell.busbw * cell.time_s
    return Point(figure.row.size_bytes, cell.busbw, _note(figure), *((moved / interval[1], moved / interval[0]) if interval else ()))


def _bounds(sheets: Sequence[Sheet]) -> list[Rule]:
    """A rule for each bound, one for all files where it is the same for all."""
    found: list[tuple[float, str, list[Sheet]]] = []
    for sheet in sheets:
        ideal, endpoint = sheet.result.ideal, sheet.result.endpoint_ideal
        same = ideal is not None and endpoint is not None and _alike(ideal.busbw, endpoint.busbw)
        for name, bound in (("ideal", ideal), ("endpoint ideal", None if same else endpoint)):
            if bound is None or not drawable(bound.busbw):
                continue
            known = next((owners for value, word, owners in found if word == name and _alike(value, bound.busbw)), None)
            if known is None:
                found.append((bound.busbw, name, [sheet]))
            else:
                known.append(sheet)
    return [_rule(value, name, owners, sheets) for value, name, owners in found]


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(one, other)


def _rule(busbw: float, name: str, owners: list[Sheet], sheets: Sequence[Sheet]) -> Rule:
    letters = "" if len(owners) == len(sheets) else " ".join(sheet.letter for sheet in owners) + " "
    look = owners[0].index if len(owners) == 1 else None
    return Rule(look, busbw, f"{letters}{name} {nominal(busbw)}")


def _said(curves: Sequence[Curve], text: Callable[[float], str], unit: str) -> str:
    """The plot in a sentence, for those who do not see it."""
    points = [point for curve in curves if curve.kind != "launch" for point in curve.points]
    if not points:
        return ""
    low, high = min(points, key=lambda point: point.y), max(points, key=lambda point: point.y)
    return (
        f"Both axes are logarithmic. Lowest {text(low.y)}{unit} at {format_size(int(low.x))}, "
        f"highest {text(high.y)}{unit} at {format_size(int(high.x))}. The tables hold every figure."
    )


def _legend(plot: Plot, sheets: Sequence[Sheet]) -> Element:
    kinds = {curve.kind for curve in plot.curves}
    several = len(sheets) > 1
    look = None if several else sheets[0].index
    items = [(swatch(sheet.index, "plain"), f"{sheet.letter} {sheet.name}") for sheet in sheets if several]
    for kind, words in (("out", OUT_OF_PLACE), ("in", IN_PLACE), ("launch", "launch cost on the host")):
        if kind in kinds:
            items.append((swatch(look, kind), words))
    if plot.rules:
        items.append((swatch(None, "bound"), "ideal, GB/s"))
    if any(point.low for curve in plot.curves for point in curve.points):
        items.append((swatch(look, "interval"), "confidence interval"))
    return tag("ul", *(tag("li", drawn, words) for drawn, words in items), class_="legend")


def _gb_tick(value: float) -> str:
    return f"{value / 1e9:.9f}".rstrip("0").rstrip(".")


def _time_tick(value: float) -> str:
    scale, unit = next(((scale, unit) for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if value >= scale * 0.99), (1e-9, "ns"))
    return f"{value / scale:g} {unit}"
