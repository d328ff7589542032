"""The plots of a report: busbw over size with its bounds, time over size with the launch cost,
and the ratio to the first file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element

from busbw.core.cells import IN_PLACE, OUT_OF_PLACE, Comparison, Figure
from busbw.core.sizes import format_size
from busbw.history.comparison import cell_text, placement, ratio_text
from busbw.report.rows import ReportInput, drawable, nominal, series
from busbw.ui.html.element import tag
from busbw.ui.html.plot import NARROW, WIDE, Curve, Guide, Plot, Point, draw, swatch
from busbw.ui.number_formats import bandwidth_text, time_text

KINDS = {OUT_OF_PLACE: "out", IN_PLACE: "in"}


def plots(
    inputs: Sequence[ReportInput], found: Mapping[int, Comparison] | None = None, group: str = ""
) -> list[Element]:
    """The figures of files that are alike, with their legends.

    The ratio is drawn where files were compared: logarithmic axes hide differences of a few
    percent. `group` names these files where a page has several groups.
    """
    drawn = [_bandwidth(inputs), _time(inputs), *([_ratio(inputs, found)] if found else [])]
    return [
        _figure(replace(plot, name=f"{plot.name}{group}"), inputs, "h4" if group else "h3")
        for plot in drawn
    ]


def _figure(plot: Plot, inputs: Sequence[ReportInput], level: str) -> Element:
    if not plot.curves:
        return tag(
            "figure",
            tag("figcaption", tag(level, plot.title)),
            tag("p", "No row has a figure to draw.", class_="note"),
        )
    caption = tag("figcaption", tag(level, plot.title), _legend(plot, inputs))
    return tag("figure", caption, draw(plot, WIDE), draw(plot, NARROW))


def _bandwidth(inputs: Sequence[ReportInput]) -> Plot:
    curves = [
        Curve(source.index, KINDS[key[-1]], points)
        for source in inputs
        for key, line in series(source.result).items()
        if (
            points := [
                _point(figure, figure.cell.busbw, -1)
                for figure in line
                if drawable(figure.cell.busbw)
            ]
        )
    ]
    said = _said(curves, bandwidth_text, " GB/s")
    return Plot(
        "busbw",
        "Bus bandwidth over message size",
        said,
        "busbw, GB/s",
        curves,
        _bounds(inputs),
        _gb_tick,
    )


def _time(inputs: Sequence[ReportInput]) -> Plot:
    curves = []
    for source in inputs:
        for key, line in series(source.result).items():
            curves.append(
                Curve(
                    source.index,
                    KINDS[key[-1]],
                    [_point(figure, figure.cell.time_s, 1) for figure in line],
                )
            )
            launches = [
                Point(figure.row.size_bytes, cost, "")
                for figure in line
                if drawable(cost := figure.cell.launch_s or 0.0)
            ]
            if launches:
                curves.append(Curve(source.index, "launch", launches))
    return Plot(
        "time",
        "Time over message size",
        _said(curves, time_text, ""),
        "time",
        curves,
        [],
        _time_tick,
    )


def _ratio(inputs: Sequence[ReportInput], found: Mapping[int, Comparison]) -> Plot:
    curves = []
    for index, comparison in found.items():
        lines: dict[tuple[str, str, int, str], list[Point]] = {}
        for cell in comparison.cells:
            key = cell.key
            if (
                cell.ratio is not None
                and drawable(cell.ratio)
                and key.size_bytes > 0
                and not key.cycle
            ):
                known = cell.low and cell.high and drawable(cell.low) and drawable(cell.high)
                note = f"{cell_text(key)}: {ratio_text(cell.ratio)}, {cell.verdict.value}"
                point = Point(
                    key.size_bytes, cell.ratio, note, *((cell.low, cell.high) if known else ())
                )
                lines.setdefault((key.dtype, key.op, key.root, placement(key)), []).append(point)
        curves += [
            Curve(index, KINDS[key[-1]], sorted(points, key=lambda one: one.x))
            for key, points in lines.items()
        ]
    base = inputs[0].letter
    said = _said(curves, ratio_text, "", "The axis of the ratio is linear.")
    rules = [Guide(None, 1.0, "")]
    return Plot(
        "ratio",
        f"Time over the time of {base}",
        said,
        f"ratio, below 1 is faster than {base}",
        curves,
        rules,
        "{:.6g}".format,
        True,
    )


def _point(figure: Figure, value: float, power: int) -> Point:
    """`value` and its interval go with this power of the time: 1 for the time itself, -1 for
    busbw, which is bytes over time.
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
    """A rule for each bound; files with the same bound share one."""
    found: dict[str, tuple[float, list[ReportInput]]] = {}
    for source in inputs:
        values: set[str] = set()
        for name, bound in (
            ("ideal", source.result.ideal),
            ("endpoint ideal", source.result.endpoint_ideal),
        ):
            value = nominal(bound.busbw) if bound is not None and drawable(bound.busbw) else ""
            if bound and value and value not in values:
                values.add(value)
                found.setdefault(f"{name} {value}", (bound.busbw, []))[1].append(source)
    rules = []
    for label, (busbw, owners) in found.items():
        letters = (
            "" if len(owners) == len(inputs) else " ".join(source.letter for source in owners) + " "
        )
        rules.append(Guide(owners[0].index if len(owners) == 1 else None, busbw, letters + label))
    return rules


def _said(
    curves: Sequence[Curve],
    text: Callable[[float], str],
    unit: str,
    axes: str = "Both axes are logarithmic.",
) -> str:
    """The plot as text, for screen readers."""
    points = [point for curve in curves if curve.kind != "launch" for point in curve.points]
    if not points:
        return ""
    low, high = min(points, key=lambda point: point.y), max(points, key=lambda point: point.y)
    return (
        f"{axes} Lowest {text(low.y)}{unit} at {format_size(int(low.x))}, "
        f"highest {text(high.y)}{unit} at {format_size(int(high.x))}. The tables hold every value."
    )


def _legend(plot: Plot, inputs: Sequence[ReportInput]) -> Element:
    kinds = {curve.kind for curve in plot.curves}
    several = len(inputs) > 1
    look = None if several else inputs[0].index
    items = [(swatch(source.index, "plain"), source.title) for source in inputs if several]
    for kind, label in (
        ("out", OUT_OF_PLACE),
        ("in", IN_PLACE),
        ("launch", "launch cost on the host"),
    ):
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
    scale, unit = next(
        (
            (scale, unit)
            for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
            if value >= scale * 0.99
        ),
        (1e-9, "ns"),
    )
    return f"{value / scale:g} {unit}"
