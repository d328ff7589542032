"""Steps over time with the delays of the late ranks, as a plot."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from xml.etree.ElementTree import Element

from busbw.core.lateness import Lateness
from busbw.core.sizes import counted
from busbw.pattern.lateness.text import name
from busbw.ui.html.axes import Scale, Tick, linear_ticks
from busbw.ui.html.element import tag
from busbw.ui.html.plot import Plot, PlotCurve, Point, figure, swatch

MAX_POINTS = 500
MAX_CURVES = 4


def steps(found: Lateness | None, prefix: str) -> list[Element]:
    """The plot; [] without a step. The ids in it begin with `prefix`."""
    if found is None or not found.steps_us:
        return []
    unit = "part" if found.parts else "step"
    series = [(f"{unit}", found.steps_us)]
    series += [
        (f"delay of {name(late)}", late.steps_us)
        for late in found.late[:MAX_CURVES]
        if len(late.steps_us) == len(found.steps_us)
    ]
    numbers = found.numbers or range(found.skipped, found.skipped + len(found.steps_us))
    curves = [
        PlotCurve(color, "time", _points(numbers, values))
        for color, (_, values) in enumerate(series)
    ]
    plot = Plot(
        name=f"{prefix}-steps",
        title=f"Duration of each {unit}, and how late ranks were",
        description=f"{unit}s in order, {counted(len(found.late), 'late rank')}.",
        unit="ms",
        curves=curves,
        guides=[],
        y_text=lambda value: f"{value:.6g}",
        linear=True,
        zero=True,
        x=Scale(unit, _step_ticks, (numbers[0] + 1.0, numbers[-1] + 1.0)),
    )
    items = [tag("li", swatch(color, "time"), label) for color, (label, _) in enumerate(series)]
    return [figure(plot, tag("ul", *items, class_="legend"), "h3")]


def _points(numbers: Sequence[int], values_us: Sequence[float]) -> list[Point]:
    """The values in milliseconds, or the means of consecutive ones if they are too many."""
    count = min(len(values_us), MAX_POINTS)
    ends = [len(values_us) * at // count for at in range(count + 1)]
    return [
        Point(numbers[first] + 1.0, max(0.0, fmean(values_us[first:after]) / 1e3), "")
        for first, after in pairwise(ends)
    ]


def _step_ticks(low: float, high: float, limit: int) -> list[Tick]:
    return [(value, f"{value:.0f}") for value in linear_ticks(low, high, limit) if value % 1 == 0]
