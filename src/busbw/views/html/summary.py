"""What stands first: the collective and the machine, whether the answer can be trusted, and the figures that people quote."""

from collections import Counter
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import Figure, every, peak
from busbw.core.result import Ideal, Result
from busbw.core.sizes import format_size
from busbw.views.comparison import summary as comparison_summary
from busbw.views.html.comparison import Comparisons
from busbw.views.html.machine import facts, table
from busbw.views.html.plot import swatch
from busbw.views.html.report_input import ReportInput, fastest, nominal
from busbw.views.html.rows import NONE
from busbw.views.html.tree import tag
from busbw.views.table import peak_text
from busbw.views.words import bandwidth_text, counted, library, machine, percent_text, time_text


def heading(inputs: Sequence[ReportInput]) -> tuple[str, str]:
    """The title, and the machine and engine where all files share them."""
    titles = dict.fromkeys(source.result.spec.row.title for source in inputs)
    lines = dict.fromkeys(", ".join(filter(None, (machine(source.result), library(source.result)))) for source in inputs)
    return ", ".join(titles), next(iter(lines)) if len(lines) == 1 else f"{len(inputs)} results from {len(lines)} set-ups"


def sentence(inputs: Sequence[ReportInput], found: Comparisons) -> list[Element]:
    """What the page shows, in a sentence: of one file peak, data check and findings; of several each comparison with the first."""
    first, *others = inputs
    texts = [f"{one.letter} compared with {first.letter}: {comparison_summary(found[one.index])}." for one in others if one.index in found]
    if not others:
        result = first.result
        top, bad = peak_text(result), Counter(finding.verdict.value for finding in result.findings)
        judged = ", ".join(counted(bad[verdict], noun) for verdict, noun in (("fail", "failure"), ("warn", "warning")) if bad[verdict])
        known = (f"Peak busbw {top}" if top else "No size was measured", f"data check: {_data(result)}", judged)
        texts = ["; ".join(filter(None, known)) + "."]
    return [tag("p", text, class_="lead") for text in texts]


def warnings(inputs: Sequence[ReportInput]) -> list[Element]:
    """A line for each reason not to trust a file's figures at first sight."""
    said = []
    for source in inputs:
        result, owner = source.result, f"{source.letter}: " if len(inputs) > 1 else ""
        if result.wrong():
            said.append(f"{owner}Wrong data: {_found(result)}.")
        if not result.complete:
            said.append(f"{owner}The sweep did not end; these sizes are what was measured.")
        said += [f"{owner}Error: {error}" for error in result.errors]
    return [tag("p", text, class_="warning") for text in said]


def summary(inputs: Sequence[ReportInput]) -> Element | None:
    """Tiles for one file, a line each for several."""
    return _tiles(inputs[0].result) if len(inputs) == 1 else _table(inputs)


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
    if not _wrong(result):  # a log may state only the sum
        return f"{result.out_of_bounds} checks failed"
    return f"{_wrong(result)} of {_checks(result)} checks saw wrong elements"


def _data(result: Result) -> str:
    return "failed" if result.wrong() else "passed" if _checks(result) else "not checked"


def _table(inputs: Sequence[ReportInput]) -> Element:
    titles = ("file", "collective", "machine", "start", "peak busbw", "of ideal", "shortest", "data check")
    lines: list[list[str | Element]] = [[tag("span", swatch(one.index, "plain"), f" {one.title}"), *_texts(one.result)] for one in inputs]
    return table(titles, lines, "Files")


def _texts(result: Result) -> list[str]:
    top, first = peak(every(result)), fastest(result)
    return [
        result.spec.row.title,
        ", ".join(filter(None, (machine(result), library(result)))) or NONE,
        result.start or NONE,
        f"{bandwidth_text(top.cell.busbw)} GB/s" if top else NONE,
        f"{percent_text(top.cell.busbw, result.ideal.busbw)} %" if top and result.ideal else NONE,
        time_text(first.cell.time_s) if first else NONE,
        _data(result),
    ]
