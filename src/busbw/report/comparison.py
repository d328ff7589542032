"""Files that are alike, compared with the first of them: the times of each cell, their ratio and
the verdict.
"""

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import CellKey, ComparedCell, Comparison
from busbw.core.sizes import format_size
from busbw.history.comparison import (
    closing,
    interval_text,
    placement,
    ratio_text,
    summary,
    warnings,
)
from busbw.report.rows import NONE, ReportInput, scroll
from busbw.ui.html.element import add, tag
from busbw.ui.html.plot import swatch
from busbw.ui.number_formats import time_text

KEYS = (("size", None), ("type", "words extra"), ("op", "words extra"), ("placement", "words"))
Comparisons = Mapping[int, Comparison]  # of the file with this index with the baseline of its group
Compared = Mapping[CellKey, ComparedCell]


def comparison(inputs: Sequence[ReportInput], found: Comparisons) -> list[Element]:
    """What was compared and how, and the table.

    `inputs` are alike; `found` has the comparisons of the page with their baselines.
    """
    first, *others = inputs
    compared = [source for source in others if source.index in found]
    if not compared:
        return []
    said = [f"ratio: time of the file over the time of {first.letter}; below 1 is faster."]
    for source in compared:
        judged = found[source.index]
        sentences = "; ".join([*warnings(judged), summary(judged), *closing(judged)])
        said.append(f"{_called(source, 'B')} compared with {_called(first, 'A')}: {sentences}.")
    notes = [tag("p", text, class_="note") for text in said]
    return [*notes, _table(first, compared, found)]


def _called(source: ReportInput, side: str) -> str:
    """The file's letter; the sentences of a comparison call its two sides A and B."""
    return source.letter if source.letter == side else f"{source.letter} (called {side} here)"


def _table(first: ReportInput, others: Sequence[ReportInput], found: Comparisons) -> Element:
    compared = [{cell.key: cell for cell in found[source.index].cells} for source in others]
    groups, titles = tag("tr", tag("td", colspan=4), class_="extra"), tag("tr")
    add(titles, *(tag("th", title, scope="col", class_=classes) for title, classes in KEYS))
    for source in (first, *others):
        columns = (
            (("time", "first"),)
            if source is first
            else (("time", "first extra"), ("ratio", None), ("verdict", "words"))
        )
        add(
            groups,
            tag(
                "th",
                swatch(source.index, "plain"),
                f" {source.title}",
                scope="colgroup",
                colspan=len(columns),
            ),
        )
        add(
            titles,
            *(
                tag("th", f"{title} {source.letter}", scope="col", class_=classes)
                for title, classes in columns
            ),
        )
    lines = (
        tag("tr", *_line(key, compared))
        for key in dict.fromkeys(key for one in compared for key in one)
    )
    return scroll(
        tag("table", tag("thead", groups, titles), tag("tbody", *lines), class_="rows compared"),
        "Comparison",
    )


def _line(key: CellKey, compared: Sequence[Compared]) -> Iterator[Element]:
    yield tag("th", format_size(key.size_bytes), scope="row")
    for text, (_, classes) in zip((key.dtype, key.op, placement(key)), KEYS[1:], strict=True):
        yield tag("td", text or NONE, class_=classes)
    yield _time(next((cell.a_s for one in compared if (cell := one.get(key))), None), "first")
    for one in compared:
        cell = one.get(key)
        yield _time(cell.b_s if cell else None, "first extra")
        interval = (
            tag("small", f" {interval_text(cell)}", class_="extra")
            if cell and cell.low is not None
            else None
        )
        yield tag(
            "td", ratio_text(cell.ratio) if cell and cell.ratio is not None else NONE, interval
        )
        said = cell.verdict.value if cell else ""
        yield tag("td", said or NONE, class_=f"words c-{said}" if said else "words")


def _time(seconds: float | None, classes: str) -> Element:
    return tag("td", NONE if seconds is None else time_text(seconds), class_=classes)
