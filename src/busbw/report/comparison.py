"""Builds the section of a report that compares several results of one kind with the first: the
times of each cell, their ratio and the verdict.
"""

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import CellKey
from busbw.core.comparison import ComparedCell, Comparison
from busbw.core.sizes import format_size
from busbw.history.comparison_text import (
    closing,
    interval_text,
    placement,
    ratio_text,
    summary,
    warnings,
)
from busbw.report.rows import NO_VALUE, ReportInput
from busbw.ui.html.element import add, tag
from busbw.ui.html.plot import swatch
from busbw.ui.html.table import scroll
from busbw.ui.number_formats import time_text

KEYS = (("size", None), ("type", "words extra"), ("op", "words extra"), ("placement", "words"))
BASELINE_COLUMNS = (("time", "first"),)
COMPARED_COLUMNS = (("time", "first extra"), ("ratio", None), ("verdict", "words"))
# Of each file with the baseline of its group, by the index of the file.
Comparisons = Mapping[int, Comparison]
CellsByKey = Mapping[CellKey, ComparedCell]


def comparison(inputs: Sequence[ReportInput], comparisons: Comparisons) -> list[Element]:
    """Notes on what was compared and how, and the table.

    `inputs` are alike; `comparisons` are those of the whole page.
    """
    first, *others = inputs
    compared = [source for source in others if source.index in comparisons]
    if not compared:
        return []
    notes = [f"ratio: time of the file over the time of {first.letter}; below 1 is faster."]
    details = [_details(comparisons[source.index]) for source in compared]
    common = _common(details) if len(details) > 1 else []
    for source, own in zip(compared, details, strict=True):
        sides = f"{_side_name(source, 'B')} compared with {_side_name(first, 'A')}"
        unshared = [text for text in own if text not in common]
        notes.append(f"{sides}: {'; '.join([summary(comparisons[source.index]), *unshared])}.")
    if common:
        notes.append(f"All of them: {'; '.join(common)}.")
    paragraphs = [tag("p", note, class_="note") for note in notes]
    return [*paragraphs, _table(first, compared, comparisons)]


def _details(comparison: Comparison) -> list[str]:
    return [*warnings(comparison), *closing(comparison)]


def _common(details: Sequence[Sequence[str]]) -> list[str]:
    """The sentences that each of several comparisons has."""
    first, *others = details
    return [text for text in first if all(text in other for other in others)]


def _side_name(source: ReportInput, side: str) -> str:
    """The file's letter; the sentences of a comparison call its two sides A and B."""
    return source.letter if source.letter == side else f"{source.letter} (called {side} here)"


def _table(first: ReportInput, others: Sequence[ReportInput], comparisons: Comparisons) -> Element:
    files = [_by_key(comparisons[source.index]) for source in others]
    keys = dict.fromkeys(key for cells in files for key in cells)
    lines = [tag("tr", *_line(key, files)) for key in keys]
    head = tag("thead", *_head(first, others))
    return scroll(tag("table", head, tag("tbody", *lines), class_="rows compared"), "Comparison")


def _by_key(comparison: Comparison) -> CellsByKey:
    return {cell.key: cell for cell in comparison.cells}


def _head(first: ReportInput, others: Sequence[ReportInput]) -> tuple[Element, Element]:
    """Two lines: the files, each over its columns, and the titles of the columns."""
    groups, titles = tag("tr", tag("td", colspan=4), class_="extra"), tag("tr")
    add(titles, *(tag("th", title, scope="col", class_=classes) for title, classes in KEYS))
    for source in (first, *others):
        columns = BASELINE_COLUMNS if source is first else COMPARED_COLUMNS
        file = (swatch(source.index, "plain"), f" {source.title}")
        add(groups, tag("th", *file, scope="colgroup", colspan=len(columns)))
        for title, classes in columns:
            add(titles, tag("th", f"{title} {source.letter}", scope="col", class_=classes))
    return groups, titles


def _line(key: CellKey, files: Sequence[CellsByKey]) -> Iterator[Element]:
    """A cell in each file: size, type, operator, placement, then times, ratios and verdicts."""
    yield tag("th", format_size(key.size_bytes), scope="row")
    for text, (_, classes) in zip((key.dtype, key.op, placement(key)), KEYS[1:], strict=True):
        yield tag("td", text or NO_VALUE, class_=classes)
    baseline_s = next((cells[key].a_s for cells in files if key in cells), None)
    yield _time(baseline_s, "first")
    for cells in files:
        cell = cells.get(key)
        if cell is None:
            yield _time(None, "first extra")
            yield tag("td", NO_VALUE)
            yield tag("td", NO_VALUE, class_="words")
            continue
        yield _time(cell.b_s, "first extra")
        interval = None
        if cell.low is not None:
            interval = tag("small", f" {interval_text(cell)}", class_="extra")
        yield tag("td", NO_VALUE if cell.ratio is None else ratio_text(cell.ratio), interval)
        yield tag("td", cell.verdict.value, class_=f"words c-{cell.verdict.value}")


def _time(seconds: float | None, classes: str) -> Element:
    return tag("td", NO_VALUE if seconds is None else time_text(seconds), class_=classes)
