"""Several files side by side: time and busbw of each cell, and how each file's time stands to the first's."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from busbw.core.cells import CellKey, runs, usable
from busbw.core.comparison import ComparedCell, Comparison
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.views.comparison import closing, interval_text, ratio_text, summary
from busbw.views.html.plot import swatch
from busbw.views.html.rows import NONE, scroll
from busbw.views.html.sheet import Sheet
from busbw.views.html.tree import add, tag
from busbw.views.words import bandwidth_text, time_text

Comparisons = Mapping[int, Comparison]  # of the file with this index beside the first


class Typical(NamedTuple):
    """The medians of a cell over a file's repeats: seconds, and bytes per second."""

    time_s: float
    busbw: float


def typical(result: Result) -> Iterator[tuple[CellKey, Typical]]:
    """Each cell once, in the order of the table."""
    repeats = runs(result)
    for key in dict.fromkeys(key for repeat in repeats for key in repeat):
        found = [repeat[key] for repeat in repeats if key in repeat]
        yield key, Typical(statistics.median(one.time_s for one in found), statistics.median(one.cell.busbw for one in found))


def comparison(sheets: Sequence[Sheet], found: Comparisons | None = None) -> list[Element]:
    """The table, and what its last columns mean. Only files of the first one's collective stand in it."""
    first, *others = sheets
    alike = [first, *(sheet for sheet in others if sheet.result.spec.collective == first.result.spec.collective)]
    left = [sheet.letter for sheet in others if sheet not in alike]
    said = [f"{', '.join(left)}: another collective than that of {first.letter}, not compared."] if left else []
    if len(alike) == 1:
        return [tag("p", *said, class_="note")]
    known = {sheet.index: (found or {}).get(sheet.index) for sheet in alike}
    return [*(tag("p", words, class_="note") for words in [*said, *_notes(alike, known)]), _table(alike, known)]


def _notes(sheets: Sequence[Sheet], known: Mapping[int, Comparison | None]) -> list[str]:
    first, *others = sheets
    said = [f"ratio: time of the file over the time of {first.letter}; below 1 is faster."]
    repeated = [f"{sheet.letter} of {count}" for sheet in sheets if (count := len(runs(sheet.result))) > 1]
    if repeated:
        said.append(f"time and busbw: medians over the repeats, {', '.join(repeated)}.")
    untested = [sheet.letter for sheet in others if known[sheet.index] is None]
    if untested:
        said.append(f"{', '.join(untested)}: nothing was tested; a ratio alone does not say whether a difference is noise.")
    for sheet in others:
        judged = known[sheet.index]
        if judged is not None:  # its lines call the two sides A and B
            sides = "" if sheet.letter == "B" else " (called B here)"
            said.append(f"{sheet.letter}{sides} against {first.letter}: {'. '.join([summary(judged), *closing(judged)])}.")
    return said


def _table(sheets: Sequence[Sheet], known: Mapping[int, Comparison | None]) -> Element:
    times = [dict(typical(sheet.result)) for sheet in sheets]
    verdicts = [{cell.key: cell for cell in one.cells} if (one := known[sheet.index]) else {} for sheet in sheets]
    groups, titles = tag("tr", tag("td", colspan=4)), tag("tr", tag("th", "size", scope="col"))
    add(titles, *(tag("th", title, scope="col", class_="words") for title in ("type", "op", "placement")))
    for number, (sheet, judged) in enumerate(zip(sheets, verdicts, strict=True)):
        names = ["time", "busbw"] + (["ratio"] if number else []) + (["verdict"] if judged else [])
        kinds = {"time": "first", "verdict": "words"}
        add(groups, tag("th", swatch(sheet.index, "plain"), f" {sheet.letter} {sheet.name}", scope="colgroup", colspan=len(names)))
        add(titles, *(tag("th", name, scope="col", class_=kinds.get(name)) for name in names))
    keys = dict.fromkeys(key for one in times for key in one)
    lines = [_line(key, times, verdicts) for key in keys]
    return scroll(tag("table", tag("thead", groups, titles), tag("tbody", *lines), class_="rows compared"), "Comparison")


def _line(key: CellKey, times: Sequence[Mapping[CellKey, Typical]], verdicts: Sequence[Mapping[CellKey, ComparedCell]]) -> Element:
    line = tag("tr", tag("th", format_size(key.size_bytes), scope="row"))
    add(line, *(tag("td", word or NONE, class_="words") for word in (key.dtype, key.op, key.placement.replace("_", " "))))
    base = times[0].get(key)
    for number, (one, judged) in enumerate(zip(times, verdicts, strict=True)):
        cell, verdict = one.get(key), judged.get(key)
        add(line, tag("td", time_text(cell.time_s) if cell else NONE, class_="first"))
        add(line, tag("td", bandwidth_text(cell.busbw) if cell else NONE))
        if number:
            add(line, tag("td", _ratio(base, cell, verdict), _interval(verdict)))
        if judged:
            word = verdict.verdict.value if verdict else ""
            add(line, tag("td", word or NONE, class_=f"words c-{word}" if word else "words"))
    return line


def _ratio(base: Typical | None, cell: Typical | None, verdict: ComparedCell | None) -> str:
    """The ratio that was tested, which its interval is of; else that of the times."""
    if verdict is not None and verdict.ratio is not None:
        return ratio_text(verdict.ratio)
    if base is None or cell is None or not (usable(base.time_s) and usable(cell.time_s)):
        return NONE
    return ratio_text(cell.time_s / base.time_s)


def _interval(verdict: ComparedCell | None) -> Element | None:
    if verdict is None or verdict.low is None or verdict.high is None:
        return None
    return tag("small", f" {interval_text(verdict)}")
