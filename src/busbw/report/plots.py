"""The plots of a report: busbw over size with its bounds, time over size with the launch cost,
and the ratio to the first file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from xml.etree.ElementTree import Element

from busbw.core.cells import IN_PLACE, OUT_OF_PLACE, Figure
from busbw.core.comparison import Comparison
from busbw.core.sizes import format_size
from busbw.history.comparison_text import cell_text, placement, ratio_text
from busbw.report.rows import ReportInput, alike, drawable, series
from busbw.ui.html.axes import gb_tick, time_tick
from busbw.ui.html.element import tag
from busbw.ui.html.plot import Guide, Plot, PlotCurve, Point, bandwidth_figure, figure, swatch
from busbw.ui.number_formats import bandwidth_text, nominal_text, time_text

KINDS = {OUT_OF_PLACE: "out", IN_PLACE: "in"}
Draw = Callable[[Plot, Element, str], Element]


def plots(
    inputs: Sequence[ReportInput],
    comparisons: Mapping[int, Comparison] = MappingProxyType({}),
    group: str = "",
) -> list[Element]:
    """The plots of files of one kind, with their legends.

    `comparisons` are by the index of the file. If there are any, their ratios are drawn, those to
    one file together: logarithmic axes hide differences of a few percent. `group` names these files
    where a page has several groups.
    """
    drawn = [(_bandwidth(inputs), bandwidth_figure), (_time(inputs), figure)]
    for first, *others in alike(inputs):
        indices = [other.index for other in others if other.index in comparisons]
        if indices:
            in_group = {index: comparisons[index] for index in indices}
            drawn.append((_ratio(first, in_group), figure))
    level = "h4" if group else "h3"
    return [
        _figure(replace(plot, name=f"{plot.name}{group}"), draw, inputs, level)
        for plot, draw in drawn
    ]


def _figure(plot: Plot, draw: Draw, inputs: Sequence[ReportInput], level: str) -> Element:
    if not plot.curves:
        return tag(
            "figure",
            tag("figcaption", tag(level, plot.title)),
            tag("p", "No row has a figure to draw.", class_="note"),
        )
    return draw(plot, _legend(plot, inputs), level)


def _bandwidth(inputs: Sequence[ReportInput]) -> Plot:
    curves = []
    for source in inputs:
        for key, figures in series(source.result).items():
            points = [
                _point(figure, figure.cell.busbw, -1)
                for figure in figures
                if drawable(figure.cell.busbw)
            ]
            if points:
                curves.append(PlotCurve(source.index, KINDS[key[-1]], points))
    return Plot(
        name="busbw",
        title="Bus bandwidth over message size",
        description=_description(curves, bandwidth_text, " GB/s", ""),
        unit="busbw, GB/s",
        curves=curves,
        guides=_bounds(inputs),
        y_text=gb_tick,
    )


def _time(inputs: Sequence[ReportInput]) -> Plot:
    curves = []
    for source in inputs:
        for key, figures in series(source.result).items():
            points = [_point(figure, figure.cell.time_s, 1) for figure in figures]
            curves.append(PlotCurve(source.index, KINDS[key[-1]], points))
            costs = [(figure.row.size_bytes, figure.cell.launch_s or 0.0) for figure in figures]
            launches = [Point(size, cost, "") for size, cost in costs if drawable(cost)]
            if launches:
                curves.append(PlotCurve(source.index, "launch", launches))
    return Plot(
        name="time",
        title="Time over message size",
        description=_description(curves, time_text, "", "Both axes are logarithmic. "),
        unit="time",
        curves=curves,
        guides=[],
        y_text=time_tick,
    )


def _ratio(first: ReportInput, comparisons: Mapping[int, Comparison]) -> Plot:
    curves = []
    for index, comparison in comparisons.items():
        curves += _ratio_curves(index, comparison)
    base = first.letter
    return Plot(
        name=f"ratio{base}",
        title=f"Time over the time of {base}",
        description=_description(curves, ratio_text, "", "The axis of the ratio is linear. "),
        unit=f"ratio, below 1 is faster than {base}",
        curves=curves,
        guides=[Guide(None, 1.0, "")],
        y_text="{:.6g}".format,
        linear=True,
    )


def _ratio_curves(index: int, comparison: Comparison) -> list[PlotCurve]:
    """The ratios of a file by type, operator, root and placement."""
    lines: dict[tuple[str, str, int, str], list[Point]] = {}
    for cell in comparison.cells:
        key = cell.key
        if cell.ratio is None or not drawable(cell.ratio) or key.size_bytes <= 0 or key.cycle:
            continue
        note = f"{cell_text(key)}: {ratio_text(cell.ratio)}, {cell.verdict.value}"
        point = Point(key.size_bytes, cell.ratio, note)
        if cell.low and cell.high and drawable(cell.low) and drawable(cell.high):
            point = replace(point, low=cell.low, high=cell.high)
        lines.setdefault((key.dtype, key.op, key.root, placement(key)), []).append(point)
    return [
        PlotCurve(index, KINDS[key[-1]], sorted(points, key=lambda point: point.x))
        for key, points in lines.items()
    ]


def _point(figure: Figure, value: float, power: int) -> Point:
    """A figure as a point at `value`.

    `value` and its interval go with this power of the time: 1 for the time itself, -1 for busbw,
    which is bytes over time.
    """
    cell, size = figure.cell, figure.row.size_bytes
    note = (
        f"{format_size(size)} {figure.row.dtype} {figure.placement}: {time_text(cell.time_s)},"
        f" busbw {bandwidth_text(cell.busbw)} GB/s"
    )
    interval = [end for end in (cell.low_s, cell.high_s) if end is not None and drawable(end)]
    ends = sorted(value * (end / cell.time_s) ** power for end in interval)
    return Point(size, value, note, *ends) if len(ends) == 2 else Point(size, value, note)


def _bounds(inputs: Sequence[ReportInput]) -> list[Guide]:
    """A guide for each bound; files with the same bound share one."""
    bounds: dict[str, tuple[float, list[ReportInput]]] = {}  # busbw and files by label
    for source in inputs:
        values: set[str] = set()
        for name, bound in (
            ("ideal", source.result.ideal),
            ("endpoint ideal", source.result.endpoint_ideal),
        ):
            if bound is None or not drawable(bound.busbw):
                continue
            value = nominal_text(bound.busbw)
            if value not in values:
                values.add(value)
                bounds.setdefault(f"{name} {value}", (bound.busbw, []))[1].append(source)
    guides = []
    for label, (busbw, owners) in bounds.items():
        if len(owners) < len(inputs):
            label = " ".join([*(source.letter for source in owners), label])
        color = owners[0].index if len(owners) == 1 else None
        guides.append(Guide(color, busbw, label))
    return guides


def _description(
    curves: Sequence[PlotCurve], text: Callable[[float], str], unit: str, axes: str
) -> str:
    """The plot as text, for screen readers."""
    points = [point for curve in curves if curve.kind != "launch" for point in curve.points]
    if not points:
        return ""
    low, high = min(points, key=lambda point: point.y), max(points, key=lambda point: point.y)
    return (
        f"{axes}Lowest {text(low.y)}{unit} at {format_size(int(low.x))}, "
        f"highest {text(high.y)}{unit} at {format_size(int(high.x))}. The tables hold every value."
    )


def _legend(plot: Plot, inputs: Sequence[ReportInput]) -> Element:
    kinds = {curve.kind for curve in plot.curves}
    color: int | None = inputs[0].index
    items = []
    if len(inputs) > 1:
        color = None
        items = [(swatch(source.index, "plain"), source.title) for source in inputs]
    for kind, label in (
        ("out", OUT_OF_PLACE),
        ("in", IN_PLACE),
        ("launch", "launch cost on the host"),
    ):
        if kind in kinds:
            items.append((swatch(color, kind), label))
    if any(guide.label for guide in plot.guides):
        items.append((swatch(None, "bound"), "ideal, GB/s"))
    if any(point.low for curve in plot.curves for point in curve.points):
        items.append((swatch(color, "interval"), "confidence interval"))
    return tag("ul", *(tag("li", sample, label) for sample, label in items), class_="legend")
