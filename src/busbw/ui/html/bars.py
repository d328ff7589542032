"""Horizontal bars, each with a label, a figure and parts that add up."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.ui.html.element import add, breakable, tag


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: the lengths of its parts, and the figure at its end."""

    label: str
    parts: Sequence[float]
    figure: str


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A line across all bars."""

    value: float
    label: str


def bar_chart(
    title: str,
    bars: Sequence[Bar],
    parts: Sequence[str] = (),
    limit: LimitLine | None = None,
    level: str = "h3",
) -> Element:
    """The bars under their title; `parts` names what they consist of."""
    lengths = [sum(bar.parts) for bar in bars]
    longest = max([*lengths, limit.value if limit else 0.0]) or 1.0
    items = [(_sample(f"s{color}", "bar-part"), name) for color, name in enumerate(parts)]
    if limit:
        items.append((_sample(None, "bar-limit"), limit.label))
    caption = tag("figcaption", tag(level, title))
    if items:
        legend = (tag("li", sample, name) for sample, name in items)
        add(caption, tag("ul", *legend, class_="legend"))
    lines = (_line(bar, longest, limit) for bar in bars)
    return tag("figure", caption, tag("ul", *lines, class_="bars"))


def _line(bar: Bar, longest: float, limit: LimitLine | None) -> Element:
    drawing = tag("svg", class_="bar", aria_hidden="true")
    start = 0.0
    for color, part in enumerate(bar.parts):
        x, width = _percent(start / longest), _percent(part / longest)
        add(drawing, tag("rect", x=x, width=width, height="100%", class_=f"bar-part s{color}"))
        start += part
    if limit:
        at = _percent(min(limit.value / longest, 0.997))
        add(drawing, tag("line", x1=at, x2=at, y1="0", y2="100%", class_="bar-limit"))
    label = tag("span", *breakable(bar.label), class_="bar-label")
    return tag("li", label, drawing, tag("span", bar.figure, class_="bar-figure"))


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.2f}%"


def _sample(color: str | None, kind: str) -> Element:
    shape = tag("rect", width="30", height="12", class_=f"{kind} {color}")
    if color is None:
        shape = tag("line", x1="15", x2="15", y1="0", y2="12", class_=kind)
    return tag("svg", shape, class_="swatch", viewBox="0 0 30 12", aria_hidden="true")
