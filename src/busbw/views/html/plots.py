"""The plots of a report: busbw over size with its bounds, time over size with the launch cost, and the ratio to the first file."""

from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import IN_PLACE, OUT_OF_PLACE, Figure
from busbw.core.comparison import Comparison
from busbw.core.result import Cell
from busbw.core.sizes import format_size
from busbw.views.comparison import cell_text, placement, ratio_text
from busbw.views.html.plot import NARROW, WIDE, Curve, Plot, Point, Rule, draw, swatch
from busbw.views.html.report_input import ReportInput, drawable, nominal, series
from busbw.views.html.tree import tag
from busbw.views.words import bandwidth_text, time_text

KINDS = {OUT_OF_PLACE: "out", IN_PLACE: "in"}
ALIKE = 0.01  # bounds that differ by less are one line


def plots(inputs: Sequence[ReportInput], found: Mapping[int, Comparison] | None = None) -> list[Element]:
    """The figures with their legends. The ratio is drawn where files were compared: logarithmic axes hide differences of a few percent."""
    drawn = [_bandwidth(inputs), _time(inputs), *([_ratio(inputs, found)] if found else [])]
    return [_figure(plot, inputs) for plot in drawn]


def _figure(plot: Plot, inputs: Sequence[ReportInput]) -> Element:
    if not plot.curves:
        return tag("figure", tag("figcaption", tag("h3", plot.title)), tag("p", "No row has a figure to draw.", class_="note"))
    caption = tag("figcaption", tag("h3", plot.title), _legend(plot, inputs))
    return tag("figure", caption, draw(plot, WIDE), draw(plot, NARROW))


def _bandwidth(inputs: Sequence[ReportInput]) -> Plot:
    curves = [
        Curve(source.index, KINDS[key[-1]], points)
        for source in inputs
        for key, line in series(source.result).items()
        if (points := [_bandwidth_point(figure) for figure in line if drawable(figure.cell.busbw)])
    ]
    said = _said(curves, bandwidth_text, " GB/s")
    return Plot("busbw", "Bus bandwidth over message size", said, "busbw, GB/s", curves, _bounds(inputs), _gb_tick)


def _time(inputs: Sequence[ReportInput]) -> Plot:
    curves = []
    for source in inputs:
        for key, line in series(source.result).items():
            curves.append(Curve(source.index, KINDS[key[-1]], [_time_point(figure) for figure in line]))
            launches = [Point(figure.row.size_bytes, cost, "") for figure in line if drawable(cost := figure.cell.launch_s or 0.0)]
            if launches:
                curves.append(Curve(source.index, "launch", launches))
    return Plot("time", "Time over message size", _said(curves, time_text, ""), "time", curves, [], _time_tick)


def _ratio(inputs: Sequence[ReportInput], found: Mapping[int, Comparison]) -> Plot:
    curves = []
    for index, comparison in found.items():
        lines: dict[tuple[str, str, int, str], list[Point]] = {}
        for cell in comparison.cells:
            key = cell.key
            if cell.ratio is not None and drawable(cell.ratio) and key.size_bytes > 0 and not key.cycle:
                known = cell.low and cell.high and drawable(cell.low) and drawable(cell.high)
                note = f"{cell_text(key)}: {ratio_text(cell.ratio)}, {cell.verdict.value}"
                point = Point(key.size_bytes, cell.ratio, note, *((cell.low, cell.high) if known else ()))
                lines.setdefault((key.dtype, key.op, key.root, placement(key)), []).append(point)
        curves += [Curve(index, KINDS[key[-1]], sorted(points, key=lambda one: one.x)) for key, points in lines.items()]
    base = inputs[0].letter
    said = _said(curves, ratio_text, "", "The axis of the ratio is linear.")
    rules = [Rule(None, 1.0, f"as {base}")]
    return Plot(
        "ratio", f"Time over the time of {base}", said, f"ratio, below 1 is faster than {base}", curves, rules, "{:.6g}".format, True
    )


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


def _bounds(inputs: Sequence[ReportInput]) -> list[Rule]:
    """A rule for each bound, one for all files where it is the same for all."""
    found: list[tuple[float, str, list[ReportInput]]] = []
    for source in inputs:
        ideal, endpoint = source.result.ideal, source.result.endpoint_ideal
        same = ideal is not None and endpoint is not None and _alike(ideal.busbw, endpoint.busbw)
        for name, bound in (("ideal", ideal), ("endpoint ideal", None if same else endpoint)):
            if bound is None or not drawable(bound.busbw):
                continue
            known = next((owners for value, word, owners in found if word == name and _alike(value, bound.busbw)), None)
            if known is None:
                found.append((bound.busbw, name, [source]))
            else:
                known.append(source)
    return [_rule(value, name, owners, inputs) for value, name, owners in found]


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(one, other)


def _rule(busbw: float, name: str, owners: list[ReportInput], inputs: Sequence[ReportInput]) -> Rule:
    letters = "" if len(owners) == len(inputs) else " ".join(source.letter for source in owners) + " "
    look = owners[0].index if len(owners) == 1 else None
    return Rule(look, busbw, f"{letters}{name} {nominal(busbw)}")


def _said(curves: Sequence[Curve], text: Callable[[float], str], unit: str, axes: str = "Both axes are logarithmic.") -> str:
    """The plot as text, for those who do not see it."""
    points = [point for curve in curves if curve.kind != "launch" for point in curve.points]
    if not points:
        return ""
    low, high = min(points, key=lambda point: point.y), max(points, key=lambda point: point.y)
    return (
        f"{axes} Lowest {text(low.y)}{unit} at {format_size(int(low.x))}, "
        f"highest {text(high.y)}{unit} at {format_size(int(high.x))}. The tables hold every figure."
    )


def _legend(plot: Plot, inputs: Sequence[ReportInput]) -> Element:
    kinds = {curve.kind for curve in plot.curves}
    several = len(inputs) > 1
    look = None if several else inputs[0].index
    items = [(swatch(source.index, "plain"), source.title) for source in inputs if several]
    for kind, label in (("out", OUT_OF_PLACE), ("in", IN_PLACE), ("launch", "launch cost on the host")):
        if kind in kinds:
            items.append((swatch(look, kind), label))
    if plot.rules and not plot.linear:
        items.append((swatch(None, "bound"), "ideal, GB/s"))
    if any(point.low for curve in plot.curves for point in curve.points):
        items.append((swatch(look, "interval"), "confidence interval"))
    return tag("ul", *(tag("li", drawn, label) for drawn, label in items), class_="legend")


def _gb_tick(value: float) -> str:
    return f"{value / 1e9:.9f}".rstrip("0").rstrip(".")


def _time_tick(value: float) -> str:
    scale, unit = next(((scale, unit) for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if value >= scale * 0.99), (1e-9, "ns"))
    return f"{value / scale:g} {unit}"
