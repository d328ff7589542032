"""A link test as one self-contained page: heat maps, a table of ports, and the findings."""

import statistics
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.core.sizes import counted
from busbw.link.text import (
    SCALE,
    Color,
    Matrix,
    PortLine,
    latency_title,
    lines,
    maps,
    method,
    shade,
    share,
)
from busbw.link.types import TCP, LinkReport, PairFlow, bits_text
from busbw.ui.html.element import findings, framed, section, tag
from busbw.ui.number_formats import local_time, text_or_unknown, time_text

CELL_UNITS = 20  # units of the drawing
MAX_CELL_PX = 32  # pixels of a cell on the page
# Pixels of a map with many hosts, unless its cells would be smaller than MIN_CELL_PX
MIN_MAP_PX = 640
MIN_CELL_PX = 8
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # hosts from one number to the next
STYLE = """
@media screen and (prefers-color-scheme: dark) { /* as in light, inverted: slow is bright */
  .map, .keys svg { --page: #ffffff; --ink: #1b1e22; --quiet: #565d66; }
  .map, .keys svg { filter: invert(0.88) hue-rotate(180deg); }
}
.map { display: block; width: 100%; height: auto; margin: 12px 0; }
.map text { fill: var(--quiet); text-anchor: middle; dominant-baseline: central; }
.failed { fill: var(--page); stroke: var(--ink); stroke-width: 2; }
.absent { fill: var(--quiet); }
.keys { list-style: none; padding: 0; margin-bottom: 24px; }
.keys { display: flex; flex-wrap: wrap; gap: 4px 16px; }
.keys li { font-size: 14px; color: var(--quiet); }
.keys svg { width: 16px; height: 16px; vertical-align: -3px; margin-right: 6px; }
"""


def page(report: LinkReport) -> bytes:
    """The page as UTF-8.

    Pointing at a cell shows its pair and rate; the table holds the rates of each host.
    """
    title = f"Links between {counted(len(report.hosts), 'host')}"
    header = tag(
        "header",
        tag("h1", title),
        tag("p", f"{method(report)}, {local_time(report.start)}", class_="facts-line"),
    )
    if not report.complete:
        header.append(
            tag("p", "The test did not finish; these are the results so far.", class_="warning")
        )
    return framed(title, tag("main", header, *parts(report)), STYLE)


def parts(report: LinkReport, level: str = "h2") -> list[Element]:
    """The findings, then the heat maps and the table of each rail; they need STYLE."""
    rails = [
        section(rail.name, *_maps(report, at), _table(report, at), level=level)
        for at, rail in enumerate(report.rails)
    ]
    return [section("Findings", findings(report.findings), level=level), *rails]


def _maps(report: LinkReport, rail: int) -> list[Element]:
    elements: list[Element] = []
    for together, rows, full in maps(report, rail):
        directions = "Both directions at the same time. " if together else ""
        elements += [
            tag("p", f"{directions}Rows send, columns receive.", class_="note"),
            _map(report, rows, full),
            _keys(full),
        ]
    return elements or [tag("p", "Nothing was measured here.", class_="note")]


def _map(report: LinkReport, rows: Matrix, full: float) -> Element:
    """The heat map. Numbers grow with the drawing, so that they stay legible on a narrow page."""
    count = len(rows)
    font = max(11.0, CELL_UNITS * count / 38)
    margin = 2.2 * font
    side = margin + CELL_UNITS * count
    drawing = tag(
        "svg",
        viewBox=f"0 0 {side:g} {side:g}",
        class_="map",
        role="img",
        aria_label="rates between hosts",
    )
    widest = min(MAX_CELL_PX * side / CELL_UNITS, max(MIN_MAP_PX, MIN_CELL_PX * count))
    drawing.set("style", f"max-width: {widest:.0f}px")
    step = next((step for step in STEPS if step * CELL_UNITS >= 1.6 * font), count)
    for sender in range(count):
        if sender % step == 0:
            middle = margin + CELL_UNITS * (sender + 0.5)
            drawing.append(tag("text", str(sender + 1), x=middle, y=margin / 2, font_size=font))
            drawing.append(tag("text", str(sender + 1), x=margin / 2, y=middle, font_size=font))
        for receiver, flow in enumerate(rows[sender]):
            if receiver != sender:
                pair = f"{report.hosts[sender].name} to {report.hosts[receiver].name}"
                x, y = margin + CELL_UNITS * receiver, margin + CELL_UNITS * sender
                drawing.append(_cell(pair, flow, full, x, y))
    return drawing


def _cell(pair: str, flow: PairFlow | None, full: float, x: float, y: float) -> Element:
    """A cell: a shade of the rate, a cross if it failed, a dot if nothing was measured.

    Cross and dot are legible without color.
    """
    description = (
        "not measured" if flow is None else flow.error or text_or_unknown(flow.rate, bits_text)
    )
    cell = tag("g", tag("title", f"{pair}: {description}"), transform=f"translate({x:g} {y:g})")
    part = share(flow, full) if flow else None
    if flow is None:
        cell.append(_absent())
    elif part is None:
        cell.append(_failed())
    else:
        cell.append(_square(shade(part)))
    return cell


def _square(value: Color) -> Element:
    color = "#{:02x}{:02x}{:02x}".format(*value)
    return tag("rect", width=CELL_UNITS - 1, height=CELL_UNITS - 1, fill=color)


def _failed() -> Element:
    side = CELL_UNITS - 3
    path = f"M1 1h{side}v{side}h-{side}zl{side} {side}m0 -{side}l-{side} {side}"
    return tag("path", d=path, class_="failed")


def _absent() -> Element:
    return tag(
        "circle",
        cx=(CELL_UNITS - 1) / 2,
        cy=(CELL_UNITS - 1) / 2,
        r=CELL_UNITS / 8,
        class_="absent",
    )


def _keys(full: float) -> Element:
    ends = {SCALE[0][0]: " or less", SCALE[-1][0]: " or more"}
    keys = [
        (f"{bits_text(part * full)}{ends.get(part, '')}", _square(value)) for part, value in SCALE
    ]
    keys += [("failed", _failed()), ("not measured", _absent())]
    return tag("ul", *(tag("li", _sample(symbol), name) for name, symbol in keys), class_="keys")


def _sample(symbol: Element) -> Element:
    return tag("svg", symbol, viewBox=f"0 0 {CELL_UNITS - 1} {CELL_UNITS - 1}", aria_hidden="true")


def _titles(report: LinkReport) -> list[str]:
    titles = ["", "host", "port", "sends (median)", "receives (median)", "slowest"]
    titles.append(latency_title(report))
    if report.spec.method == TCP:
        titles.append("resent")
    return titles


def _table(report: LinkReport, rail: int) -> Element:
    titles = _titles(report)
    head = tag("thead", tag("tr", *(tag("th", title) for title in titles)))
    body = tag("tbody", *(_line(line, titles) for line in lines(report, rail)))
    return tag("div", tag("table", head, body, class_="text"), class_="scroll", tabindex="0")


def _line(line: PortLine, titles: Sequence[str]) -> Element:
    medians = [statistics.median(rates) if rates else None for rates in (line.sent, line.received)]
    texts = [
        line.host,
        line.port,
        *(text_or_unknown(rate, bits_text) for rate in medians),
        text_or_unknown(min(line.sent + line.received, default=None), bits_text),
    ]
    texts += [text_or_unknown(line.median_s, time_text), text_or_unknown(line.resent, str)]
    cells = (
        tag("td", text, data_title=title) for title, text in zip(titles[1:], texts, strict=False)
    )
    return tag("tr", tag("th", str(line.number)), *cells)
