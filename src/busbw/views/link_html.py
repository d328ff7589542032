"""A test of links as one self-contained page: heat maps, a table of ports, and the findings."""

from importlib import resources
from xml.etree.ElementTree import Element

from busbw.core.linking import Flow, LinkReport, bits_text
from busbw.core.sizes import counted
from busbw.views.formats import known, local_time, time_text
from busbw.views.html.findings import findings
from busbw.views.html.page import POLICY, section
from busbw.views.html.tree import document, tag
from busbw.views.link import PortLine, lines
from busbw.views.link_matrix import ABSENT, FAILED, SCALE, Color, Matrix, color, matrix, reference

CELL = 20  # units of the drawing
MARGIN = 30
NARROW = 640  # pixels up to which a map grows: with few hosts larger cells would say no more
TITLES = ("", "host", "port", "sends (median)", "receives (median)", "slowest", "latency", "resent")
STYLE = """
.map { display: block; width: 100%; height: auto; margin: 12px 0; }
.map text { font-size: 11px; fill: var(--quiet); text-anchor: middle; }
.keys { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 14px; color: var(--quiet); }
.keys svg { width: 14px; height: 14px; vertical-align: -2px; margin-right: 6px; }
"""


def page(report: LinkReport) -> bytes:
    """The page as UTF-8. Pointing at a cell shows its pair and rate; the table holds the rates of each host."""
    title = f"Links between {counted(len(report.hosts), 'host')}"
    header = tag("header", tag("h1", title), tag("p", f"{report.spec.method}, {local_time(report.start)}", class_="facts-line"))
    if not report.complete:
        header.append(tag("p", "The test did not end; this is what was measured.", class_="warning"))
    parts = [section("Findings", findings(report.findings))]
    for rail, one in enumerate(report.rails):
        parts.append(section(one.name, *_maps(report, rail), _table(report, rail)))
    style = resources.files("busbw.views.html").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – busbw"),
        tag("style", style + STYLE),
    )
    return document(tag("html", head, tag("body", tag("main", header, *parts)), lang="en"))


def _maps(report: LinkReport, rail: int) -> list[Element]:
    found: list[Element] = []
    for together in (False, True):
        rows = matrix(report, rail, together=together)
        full = reference(rows)
        if full is None:
            continue
        how = "Both directions at the same time. " if together else ""
        found += [tag("p", f"{how}Rows send, columns receive.", class_="note"), _map(report, rows, full), _keys(full)]
    return found or [tag("p", "Nothing was measured here.", class_="note")]


def _map(report: LinkReport, rows: Matrix, full: float) -> Element:
    side = MARGIN + CELL * len(rows)
    drawing = tag("svg", viewBox=f"0 0 {side} {side}", class_="map", role="img", aria_label="rates between hosts")
    drawing.set("style", f"max-width: {max(NARROW, 8 * len(rows))}px")
    step = 1 if len(rows) <= 24 else 4
    for at in range(len(rows)):
        if at % step == 0:
            middle = MARGIN + CELL * at + CELL / 2
            drawing.append(tag("text", str(at + 1), x=middle, y=MARGIN - 8))
            drawing.append(tag("text", str(at + 1), x=MARGIN / 2, y=middle + 4))
        for to, flow in enumerate(rows[at]):
            if to != at:
                drawing.append(_cell(report, at, to, flow, full))
    return drawing


def _cell(report: LinkReport, at: int, to: int, flow: Flow | None, full: float) -> Element:
    names = f"{report.hosts[at].name} to {report.hosts[to].name}: "
    said = "not measured" if flow is None else flow.error or known(flow.rate, bits_text)
    x, y = MARGIN + CELL * to, MARGIN + CELL * at
    return tag("rect", tag("title", names + said), x=x, y=y, width=CELL - 1, height=CELL - 1, fill=_hex(color(flow, full)))


def _keys(full: float) -> Element:
    keys = [
        (f"{bits_text(part * full)}{' or more' if part == 1 else ' or less' if part == SCALE[0][0] else ''}", shade)
        for part, shade in SCALE
    ]
    keys += [("failed", FAILED), ("not measured", ABSENT)]
    return tag("ul", *(tag("li", _sample(value), name) for name, value in keys), class_="keys")


def _sample(value: Color) -> Element:
    return tag("svg", tag("rect", width=14, height=14, fill=_hex(value)), viewBox="0 0 14 14", aria_hidden="true")


def _hex(value: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*value)


def _table(report: LinkReport, rail: int) -> Element:
    head = tag("thead", tag("tr", *(tag("th", title) for title in TITLES)))
    body = tag("tbody", *(_line(one) for one in lines(report, rail)))
    return tag("div", tag("table", head, body, class_="text"), class_="scroll", tabindex="0")


def _line(one: PortLine) -> Element:
    middle = [sorted(rates)[len(rates) // 2] if rates else None for rates in (one.sent, one.received)]
    texts = [one.host, one.port, *(known(rate, bits_text) for rate in middle), known(min(one.sent + one.received, default=None), bits_text)]
    texts += [known(one.median_s, time_text), known(one.resent, str)]
    cells = (tag("td", text, data_title=title) for title, text in zip(TITLES[1:], texts, strict=True))
    return tag("tr", tag("th", str(one.number)), *cells)
