"""What stands first: the collective and the machine, whether the answer can be trusted, and the figures that people quote."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import Figure, every, peak
from busbw.core.result import Ideal, Result
from busbw.core.sizes import format_size
from busbw.views.html.machine import facts
from busbw.views.html.plot import swatch
from busbw.views.html.rows import NONE, scroll
from busbw.views.html.sheet import Sheet, fastest, nominal
from busbw.views.html.tree import tag
from busbw.views.words import bandwidth_text, library, machine, percent_text, time_text


def heading(sheets: Sequence[Sheet]) -> tuple[str, str]:
    """The title, and the machine and engine where all files share them."""
    titles = dict.fromkeys(sheet.result.spec.row.title for sheet in sheets)
    lines = dict.fromkeys(", ".join(filter(None, (machine(sheet.result), library(sheet.result)))) for sheet in sheets)
    return ", ".join(titles), next(iter(lines)) if len(lines) == 1 else f"{len(sheets)} results from {len(lines)} set-ups"


def warnings(sheets: Sequence[Sheet]) -> list[Element]:
    """A line for each reason not to trust a file's figures at first sight."""
    said = []
    for sheet in sheets:
        result, owner = sheet.result, f"{sheet.letter}: " if len(sheets) > 1 else ""
        if result.wrong():
            said.append(f"{owner}Wrong data: {_found(result)}.")
        if not result.complete:
            said.append(f"{owner}The sweep did not end; these sizes are what was measured.")
        said += [f"{owner}Error: {error}" for error in result.errors]
    return [tag("p", words, class_="warning") for words in said]


def summary(sheets: Sequence[Sheet]) -> Element | None:
    """Tiles for one file, a line each for several."""
    return _tiles(sheets[0].result) if len(sheets) == 1 else _table(sheets)


def _tiles(result: Result) -> Element | None:
    top, first, ideal = peak(every(result)), fastest(result), result.ideal
    if top is None or first is None:
        return None
    number, unit = time_text(first.cell.time_s).split(" ")
    tiles = facts(
        (
            ("peak busbw", _tile(bandwidth_text(top.cell.busbw), "GB/s", _where(top))),
            ("of ideal", _tile(percent_text(top.cell.busbw, ideal.busbw), "%", _bound(ideal)) if ideal else ""),
            ("shortest time", _tile(number, unit, _where(first))),
            ("data check", _tile(_data(result), "", f"{_checks(result)} checks")),
        )
    )
    if tiles is not None:
        tiles.set("class", "tiles")
    return tiles


def _tile(figure: str, unit: str, below: str) -> Element:
    return tag("span", tag("b", figure), f" {unit}" if unit else "", tag("small", below))


def _bound(ideal: Ideal) -> str:
    return f"{nominal(ideal.busbw)} GB/s, {ideal.algorithm}"


def _where(figure: Figure) -> str:
    return f"{format_size(figure.row.size_bytes)}, {figure.placement}"


def _checks(result: Result) -> int:
    return sum(figure.cell.wrong is not None for figure in every(result))


def _wrong(result: Result) -> int:
    return sum(bool(figure.cell.wrong) for figure in every(result))


def _found(result: Result) -> str:
    if not _wrong(result):  # a log may tell the sum alone
        return f"{result.out_of_bounds} checks failed"
    return f"{_wrong(result)} of {_checks(result)} checks saw wrong elements"


def _data(result: Result) -> str:
    return "failed" if result.wrong() else "passed" if _checks(result) else "not checked"


def _table(sheets: Sequence[Sheet]) -> Element:
    titles = ("file", "collective", "machine", "start", "peak busbw", "of ideal", "shortest", "data check")
    head = tag("tr", *(tag("th", title, scope="col") for title in titles))
    lines = [
        tag("tr", tag("th", swatch(sheet.index, "plain"), f" {sheet.letter} {sheet.name}", scope="row"), *(_cells(sheet.result)))
        for sheet in sheets
    ]
    return scroll(tag("table", tag("thead", head), tag("tbody", *lines), class_="text files"), "Files")


def _cells(result: Result) -> list[Element]:
    top, first = peak(every(result)), fastest(result)
    words = (
        result.spec.row.title,
        ", ".join(filter(None, (machine(result), library(result)))) or NONE,
        result.start or NONE,
        f"{bandwidth_text(top.cell.busbw)} GB/s" if top else NONE,
        f"{percent_text(top.cell.busbw, result.ideal.busbw)} %" if top and result.ideal else NONE,
        time_text(first.cell.time_s) if first else NONE,
        _data(result),
    )
    return [tag("td", word, class_="long" if number == 1 else None) for number, word in enumerate(words)]
