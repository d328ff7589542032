"""Plots over the message size as SVG, and their axes: the pixel of a value, and the ticks.

Colors, strokes and fonts are in style.css.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.core.sizes import format_size
from busbw.ui.html.element import add, tag

MIN_RATIO = 5.0  # of an axis' ends, so that a run of one size gets two ticks
TICK_FACTORS = ((1, 2, 5), (1, 3), (1,))  # of a power of ten
SIZE_STEPS = (1, 2, 3, 5, 10, 20)  # powers of two from one tick to the next
SIZE_LABEL_WIDTH = 62  # pixels
GUIDE_LABEL_WIDTH = 128  # pixels
CAP_HALF_WIDTH = 3.0  # half the width of an interval's ends
MAX_TICKS = 8
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 28, 44  # margins


@dataclass(frozen=True, slots=True)
class Axis:
    """Values `low` to `high` over pixels `start` to `end`; both above 0 on a logarithmic axis."""

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if not self.linear:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear_ticks(low: float, high: float, limit: int) -> list[float]:
    """At most `limit` multiples of 1, 2 or 5 times a power of ten from `low` to `high`."""
    power = 10.0 ** math.floor(math.log10((high - low) / limit))
    steps = (power, 2 * power, 5 * power, 10 * power, 20 * power)
    step = next(step for step in steps if (high - low) / step < limit)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def ends(values: Iterable[float], below: float, above: float) -> tuple[float, float]:
    """Lowest and highest value of a logarithmic axis that holds `values`, each above 0.

    `below` and `above` are the shares of its length that stay free at the ends.
    """
    values = list(values)
    low, high = min(values, default=1.0), max(values, default=1.0)
    if high < low * MIN_RATIO:
        center = math.sqrt(low * high)
        low, high = center / math.sqrt(MIN_RATIO), center * math.sqrt(MIN_RATIO)
    ratio = high / low
    return low / ratio**below, high * ratio**above


def ticks(low: float, high: float, limit: int) -> list[float]:
    """At most `limit` ticks of a logarithmic axis from `low` to `high`.

    These are the powers of ten, with values between them if there is room; powers are left out if
    there are more than `limit`.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in TICK_FACTORS:
        values = [factor * 10.0**power for power in powers for factor in factors]
        values = [value for value in values if low <= value <= high]
        if len(values) <= limit:
            return values
    return values[:: -(-len(values) // limit)]


def size_ticks(low: float, high: float, limit: int) -> list[int]:
    """At most `limit` powers of two from `low` to `high` (bytes), with equal steps between them."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = next((step for step in SIZE_STEPS if (last - first) // step < limit), SIZE_STEPS[-1])
    return [1 << power for power in range(max(first, 0), last + 1, step)]


@dataclass(frozen=True, slots=True)
class Point:
    """One figure: the ends of its interval are `low` and `high`, a pointer over it shows `note`."""

    x: float
    y: float
    note: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one series from left to right.

    `color` is a number of style.css; `kind` is the class that chooses strokes and marker.
    """

    color: int
    kind: str
    points: list[Point]


@dataclass(frozen=True, slots=True)
class Guide:
    """A bound: a line across the plot with its label; without a color, in that of the text."""

    color: int | None
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Plot:
    """What a plot shows. Its ids begin with `name`; `description` is for screen readers."""

    name: str
    title: str
    description: str
    unit: str
    curves: list[Curve]
    guides: list[Guide]
    y_text: Callable[[float], str]
    linear: bool = False  # the y axis


@dataclass(frozen=True, slots=True)
class Format:
    """Size of a drawing in pixels, and whether a pointer over a point shows its note."""

    name: str
    width: int
    height: int
    notes: bool


WIDE = Format("wide", 720, 430, notes=True)
NARROW = Format("narrow", 380, 350, notes=False)


def draw(plot: Plot, form: Format) -> Element:
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
    return add(svg, *(_curve(curve, x, y, form.notes) for curve in plot.curves))


def _axes(plot: Plot, form: Format) -> tuple[Axis, Axis]:
    points = [point for curve in plot.curves for point in curve.points]
    heights = [value for point in points for value in (point.y, point.low, point.high) if value]
    heights += [guide.y for guide in plot.guides]
    x = Axis(*ends((point.x for point in points), 0.02, 0.02), LEFT, form.width - RIGHT)
    if plot.linear:
        low, high = min(heights), max(heights)
        free = 0.08 * max(high - low, 0.02)
        return x, Axis(low - free, high + free, form.height - BOTTOM, TOP, linear=True)
    return x, Axis(*ends(heights, 0.04, 0.08), form.height - BOTTOM, TOP)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Element:
    return tag("path", class_=kind, d=f"M{_number(x1)} {_number(y1)}L{_number(x2)} {_number(y2)}")


def _text(x: float, y: float, text: str, kind: str) -> Element:
    return tag("text", text, class_=kind, x=_number(x), y=_number(y))


def _grid(plot: Plot, form: Format, x: Axis, y: Axis) -> Iterator[Element]:
    y_ticks = linear_ticks if plot.linear else ticks
    for value in y_ticks(y.low, y.high, MAX_TICKS):
        yield _line(x.start, y.at(value), x.end, y.at(value), "grid")
        yield _text(x.start - 8, y.at(value) + 4, plot.y_text(value), "tick y")
    for size in size_ticks(x.low, x.high, int((x.end - x.start) / SIZE_LABEL_WIDTH)):
        yield _line(x.at(size), y.start, x.at(size), y.end, "grid")
        yield _text(x.at(size), y.start + 18, format_size(size), "tick x")
    yield _line(x.start, y.start, x.end, y.start, "axis")
    yield _text(0, 14, plot.unit, "unit")
    yield _text((x.start + x.end) / 2, form.height - 6, "message size", "unit x")


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


def _curve(curve: Curve, x: Axis, y: Axis, notes: bool) -> Element:
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
    if kind == "interval":
        path = tag("path", class_="interval", d=_interval(15, 11, 1))
        return tag("g", path, class_=_colored("curve", color))
    line = tag("path", class_="line", d="M0 6L30 6")
    marker = _marker(kind, 15, 6, "")
    return tag("g", line, marker, class_=_colored(f"curve {kind}", color))


def _colored(classes: str, color: int | None) -> str:
    return classes if color is None else f"{classes} s{color}"
