"""Plots as SVG: curves over the message size or over time, with bounds and marks.

Colors, strokes and fonts are in style.css.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from busbw.ui.html.axes import SIZES, Axis, Scale, ends, linear_ticks, ticks
from busbw.ui.html.element import add, tag

X_LABEL_WIDTH = 62  # pixels
GUIDE_LABEL_WIDTH = 128  # pixels
CAP_HALF_WIDTH = 3.0  # half the width of an interval's ends
MAX_TICKS = 8
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 28, 44  # margins


@dataclass(frozen=True, slots=True)
class Point:
    """One figure: the ends of its interval are `low` and `high`, a pointer over it shows `note`."""

    x: float
    y: float
    note: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PlotCurve:
    """The points of one series from left to right.

    `color` is a number of style.css; `kind` is the class that chooses strokes and marker. `label`
    stands beside the first point that is not below `label_y`, in wide plots.
    """

    color: int
    kind: str
    points: list[Point]
    label: str = ""
    label_y: float = 0.0


@dataclass(frozen=True, slots=True)
class Guide:
    """A bound: a line across the plot with its label; without a color, in that of the text."""

    color: int | None
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class PlotMark:
    """An event at a value of the x axis: a triangle below the plot, with a note."""

    x: float
    note: str


@dataclass(frozen=True, slots=True)
class Plot:
    """What a plot shows."""

    name: str  # with which its ids begin
    title: str
    description: str  # for screen readers
    unit: str
    curves: list[PlotCurve]
    guides: list[Guide]
    y_text: Callable[[float], str]
    linear: bool = False  # the y axis
    zero: bool = False  # a linear y axis begins at 0, and ends at 1 if every value is 0
    x: Scale = SIZES
    marks: Sequence[PlotMark] = ()


@dataclass(frozen=True, slots=True)
class PlotFormat:
    """Size of a drawing in pixels, and whether a pointer over a point shows its note."""

    name: str
    width: int
    height: int
    notes: bool


WIDE = PlotFormat("wide", 720, 430, notes=True)
NARROW = PlotFormat("narrow", 380, 350, notes=False)


def figure(plot: Plot, legend: Element, level: str) -> Element:
    """The plot for wide and for narrow windows, under its title and its legend."""
    caption = tag("figcaption", tag(level, plot.title), legend)
    return tag("figure", caption, *_drawings(plot))


def bandwidth_figure(plot: Plot, legend: Element, level: str) -> Element:
    """As `figure`, with busbw on a linear axis from 0, on which 10 % at the top can be seen.

    A switch shows the plot as it is, with a logarithmic axis, on which small messages can be seen.
    """
    box = tag("input", type="checkbox", autocomplete="off")
    switch = tag("label", box, " logarithmic axis", class_="switch")
    caption = tag("figcaption", tag(level, plot.title), legend, switch)
    linear = replace(
        plot, description=f"The axis of busbw is linear. {plot.description}", linear=True, zero=True
    )
    logarithmic = replace(
        plot, name=f"{plot.name}-log", description=f"Both axes are logarithmic. {plot.description}"
    )
    return tag(
        "figure",
        caption,
        tag("div", *_drawings(linear), class_="linear"),
        tag("div", *_drawings(logarithmic), class_="log"),
    )


def _drawings(plot: Plot) -> tuple[Element, Element]:
    return draw(plot, WIDE), draw(plot, NARROW)


def draw(plot: Plot, form: PlotFormat) -> Element:
    """The plot in one format, as an svg element."""
    x, y = _axes(plot, form)
    title_id, description_id = f"{plot.name}-{form.name}-title", f"{plot.name}-{form.name}-desc"
    svg = tag(
        "svg",
        tag("title", plot.title, id=title_id),
        tag("desc", plot.description, id=description_id),
        class_=f"plot {form.name}",
        viewBox=f"0 0 {form.width} {form.height}",
        role="img",
        aria_labelledby=f"{title_id} {description_id}",
    )
    add(svg, *_grid(plot, form, x, y), *_guides(plot, x, y))
    add(svg, *(_mark(mark, x, y, notes=form.notes) for mark in plot.marks))
    add(svg, *(_curve(curve, x, y, form.notes) for curve in plot.curves))
    labeled = [curve for curve in plot.curves if curve.label and form is WIDE]
    return add(svg, *(_label(curve, x, y) for curve in labeled))


def _axes(plot: Plot, form: PlotFormat) -> tuple[Axis, Axis]:
    points = [point for curve in plot.curves for point in curve.points]
    heights = [value for point in points for value in (point.y, point.low, point.high) if value]
    heights += [guide.y for guide in plot.guides]
    x = _x_axis(plot, form, [point.x for point in points])
    bottom = form.height - BOTTOM
    if not plot.linear:
        return x, Axis(*ends(heights, 0.04, 0.08), bottom, TOP)
    low, high = min(heights), max(heights)
    if plot.zero:
        return x, Axis(0.0, 1.08 * high or 1.0, bottom, TOP, linear=True)
    free = 0.08 * max(high - low, 0.02)
    return x, Axis(low - free, high + free, bottom, TOP, linear=True)


def _x_axis(plot: Plot, form: PlotFormat, values: Sequence[float]) -> Axis:
    if plot.x.ends:
        low, high = plot.x.ends
        return Axis(low, max(high, low + 1.0), LEFT, form.width - RIGHT, linear=True)
    return Axis(*ends(values, 0.02, 0.02), LEFT, form.width - RIGHT)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Element:
    return tag("path", class_=kind, d=f"M{_number(x1)} {_number(y1)}L{_number(x2)} {_number(y2)}")


def _text(x: float, y: float, text: str, kind: str) -> Element:
    return tag("text", text, class_=kind, x=_number(x), y=_number(y))


def _grid(plot: Plot, form: PlotFormat, x: Axis, y: Axis) -> Iterator[Element]:
    y_ticks = linear_ticks if plot.linear else ticks
    for value in y_ticks(y.low, y.high, MAX_TICKS):
        yield _line(x.start, y.at(value), x.end, y.at(value), "grid")
        yield _text(x.start - 8, y.at(value) + 4, plot.y_text(value), "tick y")
    for at, label in plot.x.ticks(x.low, x.high, int((x.end - x.start) / X_LABEL_WIDTH)):
        yield _line(x.at(at), y.start, x.at(at), y.end, "grid")
        yield _text(x.at(at), y.start + 18, label, "tick x")
    yield _line(x.start, y.start, x.end, y.start, "axis")
    yield _text(0, 14, plot.unit, "unit")
    yield _text((x.start + x.end) / 2, form.height - 6, plot.x.title, "unit x")


def _guides(plot: Plot, x: Axis, y: Axis) -> Iterator[Element]:
    slots = max(1, int((x.end - x.start) / GUIDE_LABEL_WIDTH))
    for number, guide in enumerate(sorted(plot.guides, key=lambda guide: -guide.y)):
        top = y.at(guide.y)
        label = None
        if guide.label:
            left = x.start + 6 + number % slots * GUIDE_LABEL_WIDTH
            label = _text(left, top - 6, guide.label, "words")
        line = _line(x.start, top, x.end, top, "bound")
        yield tag("g", line, label, class_=_colored("rule", guide.color))


def _mark(mark: PlotMark, x: Axis, y: Axis, *, notes: bool) -> Element:
    """A thin line over the height of the plot, and a triangle on its axis."""
    title = tag("title", mark.note) if notes else None
    left = _number(x.at(mark.x))
    return tag(
        "g",
        title,
        tag("path", class_="moment", d=f"M{left} {_number(y.start)}V{_number(y.end)}"),
        tag("path", class_="event", d=f"M{left} {_number(y.start - 1)}l4.5 8h-9z"),
        class_="mark",
    )


def _curve(curve: PlotCurve, x: Axis, y: Axis, notes: bool) -> Element:
    places = [(x.at(point.x), y.at(point.y), point) for point in curve.points]
    path = "M" + "L".join(f"{_number(left)} {_number(top)}" for left, top, _ in places)
    group = tag("g", class_=_colored(f"curve {curve.kind}", curve.color))
    add(group, tag("path", class_="line", d=path))
    intervals = "".join(
        _interval(left, y.at(point.low), y.at(point.high))
        for left, _, point in places
        if point.low and point.high
    )
    if intervals:
        add(group, tag("path", class_="interval", d=intervals))
    for left, top, point in places:
        add(group, _marker(curve.kind, left, top, point.note if notes else ""))
    return group


def _label(curve: PlotCurve, x: Axis, y: Axis) -> Element:
    at = next((point for point in curve.points if point.y >= curve.label_y), curve.points[-1])
    label = _text(x.at(at.x) + 8, y.at(at.y) + 4, curve.label, "words")
    return tag("g", label, class_=_colored("rule", curve.color))


def _interval(x: float, low: float, high: float) -> str:
    line = f"M{_number(x)} {_number(low)}V{_number(high)}"
    left, cap = _number(x - CAP_HALF_WIDTH), f"h{_number(2 * CAP_HALF_WIDTH)}"
    return f"{line}M{left} {_number(low)}{cap}M{left} {_number(high)}{cap}"


def _marker(kind: str, x: float, y: float, note: str) -> Element | None:
    title = tag("title", note) if note else None
    if kind == "out":
        return tag("circle", title, cx=_number(x), cy=_number(y), r=2.8)
    if kind == "in":
        path = f"M{_number(x)} {_number(y - 4.6)}l4.6 4.6l-4.6 4.6l-4.6-4.6z"
        return tag("path", title, class_="diamond", d=path)
    return None


def swatch(color: int | None, kind: str) -> Element:
    """A piece of a curve for the legend; without a color, in that of the text."""
    return tag(
        "svg", _swatch_group(color, kind), class_="swatch", viewBox="0 0 30 12", aria_hidden="true"
    )


def _swatch_group(color: int | None, kind: str) -> Element:
    if kind == "bound":
        return tag("g", _line(0, 6, 30, 6, "bound"), class_="rule")
    if kind == "mark":
        return tag("g", tag("path", class_="event", d="M15 1l4.5 9h-9z"), class_="mark")
    if kind == "interval":
        path = tag("path", class_="interval", d=_interval(15, 11, 1))
        return tag("g", path, class_=_colored("curve", color))
    line = tag("path", class_="line", d="M0 6L30 6")
    marker = _marker(kind, 15, 6, "")
    return tag("g", line, marker, class_=_colored(f"curve {kind}", color))


def _colored(classes: str, color: int | None) -> str:
    return classes if color is None else f"{classes} s{color}"
