"""Draws one plot over the message size as SVG. Colors, strokes and fonts are in style.css.

Axes: the pixel of a value, and which values are marked.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.core.sizes import format_size
from busbw.ui.html.element import add, tag

LEAST_RATIO = 5.0  # of an axis' ends, so that a run of one size gets two ticks
BETWEEN = ((1, 2, 5), (1, 3), (1,))  # factors of a power of ten
SIZE_STEPS = (1, 2, 3, 5, 10, 20)  # powers of two from one tick to the next


@dataclass(frozen=True, slots=True)
class Axis:
    """`low` to `high` spread over pixels `start` to `end`; of a logarithmic axis both are above
    0.
    """

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        scaled, low, high = (
            (value, self.low, self.high)
            if self.linear
            else map(math.log, (value, self.low, self.high))
        )
        return self.start + (scaled - low) / (high - low) * (self.end - self.start)


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within the ends, at most `most`."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(
        step
        for step in (power, 2 * power, 5 * power, 10 * power, 20 * power)
        if (high - low) / step < most
    )
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def ends(values: Iterable[float], below: float, above: float) -> tuple[float, float]:
    """Lowest and highest value of an axis that holds `values` (each above 0), with a share of
    its length free at either end.
    """
    known = list(values)
    low, high = min(known, default=1.0), max(known, default=1.0)
    if high < low * LEAST_RATIO:
        centre = math.sqrt(low * high)
        low, high = centre / math.sqrt(LEAST_RATIO), centre * math.sqrt(LEAST_RATIO)
    ratio = high / low
    return low / ratio**below, high * ratio**above


def ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten within the ends, with values between them as `most` ticks allow; not all
    powers where there are more than that.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for between in BETWEEN:
        found = [
            factor * 10.0**power
            for power in powers
            for factor in between
            if low <= factor * 10.0**power <= high
        ]
        if len(found) <= most:
            return found
    return found[:: -(-len(found) // most)]


def size_ticks(low: float, high: float, most: int) -> list[int]:
    """Powers of two within the ends (bytes), with equal steps between them, at most `most`."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = next((step for step in SIZE_STEPS if (last - first) // step < most), SIZE_STEPS[-1])
    return [1 << power for power in range(max(first, 0), last + 1, step)]


LABEL_WIDTH = 62  # of a size under the axis, pixels
RULE_WIDTH = 128  # of the text over a rule
CAP = 3.0  # half the width of an interval's ends
MAX_TICKS = 8


@dataclass(frozen=True, slots=True)
class Point:
    """One figure; `low` and `high` are the ends of its interval, `note` is shown under a
    pointer.
    """

    x: float
    y: float
    note: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one series from left to right.

    `look` is the color, `kind` the class that chooses strokes and marker.
    """

    look: int
    kind: str
    points: list[Point]


@dataclass(frozen=True, slots=True)
class Guide:
    """A bound: a line across the plot with its label; without a look, in the color of the text."""

    look: int | None
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Plot:
    """What a plot shows. `name` makes its ids, `description` is for screen readers."""

    name: str
    title: str
    description: str
    unit: str
    curves: list[Curve]
    rules: list[Guide]
    y_text: Callable[[float], str]
    linear: bool = False  # the y axis


@dataclass(frozen=True, slots=True)
class Format:
    """Size of a drawing in pixels; `notes` whether points show their figures under a pointer."""

    name: str
    width: int
    height: int
    notes: bool


WIDE = Format("wide", 720, 430, notes=True)
NARROW = Format("narrow", 380, 350, notes=False)
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 28, 44  # margins


def draw(plot: Plot, form: Format) -> Element:
    """The plot in one format, as an svg element."""
    x, y = _axes(plot, form)
    title, description = f"{plot.name}-{form.name}-title", f"{plot.name}-{form.name}-desc"
    svg = tag(
        "svg", class_=f"plot {form.name}", viewBox=f"0 0 {form.width} {form.height}", role="img"
    )
    svg.set("aria-labelledby", f"{title} {description}")
    add(svg, tag("title", plot.title, id=title), tag("desc", plot.description, id=description))
    add(svg, *_grid(plot, form, x, y), *_rules(plot, x, y))
    return add(svg, *(_curve(curve, x, y, form.notes) for curve in plot.curves))


def _axes(plot: Plot, form: Format) -> tuple[Axis, Axis]:
    points = [point for curve in plot.curves for point in curve.points]
    heights = [value for point in points for value in (point.y, point.low, point.high) if value]
    heights += [rule.y for rule in plot.rules]
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
    for value in (linear_ticks if plot.linear else ticks)(y.low, y.high, MAX_TICKS):
        yield _line(x.start, y.at(value), x.end, y.at(value), "grid")
        yield _text(x.start - 8, y.at(value) + 4, plot.y_text(value), "tick y")
    for size in size_ticks(x.low, x.high, int((x.end - x.start) / LABEL_WIDTH)):
        yield _line(x.at(size), y.start, x.at(size), y.end, "grid")
        yield _text(x.at(size), y.start + 18, format_size(size), "tick x")
    yield _line(x.start, y.start, x.end, y.start, "axis")
    yield _text(0, 14, plot.unit, "unit")
    yield _text((x.start + x.end) / 2, form.height - 6, "message size", "unit x")


def _rules(plot: Plot, x: Axis, y: Axis) -> Iterator[Element]:
    slots = max(1, int((x.end - x.start) / RULE_WIDTH))
    for number, rule in enumerate(sorted(plot.rules, key=lambda rule: -rule.y)):
        at = y.at(rule.y)
        label = (
            _text(x.start + 6 + number % slots * RULE_WIDTH, at - 6, rule.label, "words")
            if rule.label
            else None
        )
        yield tag(
            "g", _line(x.start, at, x.end, at, "bound"), label, class_=_look("rule", rule.look)
        )


def _curve(curve: Curve, x: Axis, y: Axis, notes: bool) -> Element:
    places = [(x.at(point.x), y.at(point.y), point) for point in curve.points]
    drawn = tag("g", class_=_look(f"curve {curve.kind}", curve.look))
    add(
        drawn,
        tag(
            "path",
            class_="line",
            d="M" + "L".join(f"{_number(left)} {_number(top)}" for left, top, _ in places),
        ),
    )
    intervals = "".join(
        _interval(left, y.at(point.low), y.at(point.high))
        for left, _, point in places
        if point.low and point.high
    )
    if intervals:
        add(drawn, tag("path", class_="interval", d=intervals))
    for left, top, point in places:
        add(drawn, _marker(curve.kind, left, top, point.note if notes else ""))
    return drawn


def _interval(x: float, low: float, high: float) -> str:
    cap = f"h{_number(2 * CAP)}"
    return (
        f"M{_number(x)} {_number(low)}V{_number(high)}M{_number(x - CAP)}"
        f" {_number(low)}{cap}M{_number(x - CAP)} {_number(high)}{cap}"
    )


def _marker(kind: str, x: float, y: float, note: str) -> Element | None:
    title = tag("title", note) if note else None
    if kind == "out":
        return tag("circle", title, cx=_number(x), cy=_number(y), r=2.8)
    if kind == "in":
        return tag(
            "path",
            title,
            class_="diamond",
            d=f"M{_number(x)} {_number(y - 4.6)}l4.6 4.6l-4.6 4.6l-4.6-4.6z",
        )
    return None


def swatch(look: int | None, kind: str) -> Element:
    """A piece of a curve for the legend; without a look in the color of the text."""
    drawn = tag("svg", class_="swatch", viewBox="0 0 30 12", aria_hidden="true")
    if kind == "bound":
        return add(drawn, tag("g", _line(0, 6, 30, 6, "bound"), class_="rule"))
    if kind == "interval":
        return add(
            drawn,
            tag(
                "g",
                tag("path", class_="interval", d=_interval(15, 11, 1)),
                class_=_look("curve", look),
            ),
        )
    line = tag("path", class_="line", d="M0 6L30 6")
    marker = _marker(kind, 15, 6, "")
    return add(drawn, tag("g", line, marker, class_=_look(f"curve {kind}", look)))


def _look(classes: str, look: int | None) -> str:
    return classes if look is None else f"{classes} s{look}"
