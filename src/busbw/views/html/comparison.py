"""Several files compared: time and busbw of each cell, and the ratio of each file's time to the first's."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from busbw.core.cells import CellKey, runs, usable
from busbw.core.comparison import ComparedCell, Comparison
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.views.comparison import closing, interval_text, placement, ratio_text, summary, warnings
from busbw.views.html.plot import swatch
from busbw.views.html.report_input import ReportInput
from busbw.views.html.rows import NONE, scroll
from busbw.views.html.tree import add, tag
from busbw.views.words import bandwidth_text, time_text

KEYS = (("type", "words extra"), ("op", "words extra"), ("placement", "words"))
Comparisons = Mapping[int, Comparison]  # of the file with this index with the first


@dataclass(frozen=True, slots=True)
class Typical:
    """The medians of a cell over a file's repeats: seconds, and bytes per second."""

    time_s: float
    busbw: float


def typical(result: Result) -> Iterator[tuple[CellKey, Typical]]:
    """Each cell once, in the order of the table."""
    repeats = runs(result)
    for key in dict.fromkeys(key for repeat in repeats for key in repeat):
        found = [repeat[key] for repeat in repeats if key in repeat]
        yield key, Typical(statistics.median(cell.time_s for cell in found), statistics.median(cell.busbw for cell in found))


def comparison(inputs: Sequence[ReportInput], found: Comparisons | None = None) -> list[Element]:
    """The table, and what its last columns mean. Only files of the first one's collective are in it."""
    first, *others = inputs
    alike = [first, *(source for source in others if source.result.spec.collective == first.result.spec.collective)]
    left = [source.letter for source in others if source not in alike]
    said = [f"{', '.join(left)}: not the collective of {first.letter}, not compared."] if left else []
    if len(alike) == 1:
        return [tag("p", *said, class_="note")]
    known = {source.index: (found or {}).get(source.index) for source in alike}
    return [*(tag("p", text, class_="note") for text in [*said, *_notes(alike, known)]), _table(alike, known)]


def _notes(inputs: Sequence[ReportInput], known: Mapping[int, Comparison | None]) -> list[str]:
    first, *others = inputs
    said = [f"ratio: time of the file over the time of {first.letter}; below 1 is faster."]
    repeated = [f"{source.letter} of {count}" for source in inputs if (count := len(runs(source.result))) > 1]
    if repeated:
        said.append(f"time and busbw: medians over the repeats, {', '.join(repeated)}.")
    untested = [source.letter for source in others if known[source.index] is None]
    if untested:
        said.append(f"{', '.join(untested)}: nothing was tested; a ratio alone does not say whether a difference is noise.")
    for source in others:
        judged = known[source.index]
        if judged is not None:  # its lines call the two sides A and B
            sides = "" if source.letter == "B" else " (called B here)"
            said.append(
                f"{source.letter}{sides} against {first.letter}: {'. '.join([*warnings(judged), summary(judged), *closing(judged)])}."
            )
    return said


def _table(inputs: Sequence[ReportInput], known: Mapping[int, Comparison | None]) -> Element:
    times = [dict(typical(source.result)) for source in inputs]
    verdicts = [{cell.key: cell for cell in one.cells} if (one := known[source.index]) else {} for source in inputs]
    groups, titles = tag("tr", tag("td", colspan=4)), tag("tr", tag("th", "size", scope="col"))
    add(titles, *(tag("th", title, scope="col", class_=classes) for title, classes in KEYS))
    for number, (source, judged) in enumerate(zip(inputs, verdicts, strict=True)):
        names = ["time", "busbw"] + (["ratio"] if number else []) + (["verdict"] if judged else [])
        kinds = {"time": "first extra" if number else "first", "busbw": "extra", "verdict": "words"}
        add(groups, tag("th", swatch(source.index, "plain"), f" {source.title}", scope="colgroup", colspan=len(names)))
        add(titles, *(tag("th", name, scope="col", class_=kinds.get(name)) for name in names))
    keys = dict.fromkeys(key for one in times for key in one)
    lines = [_line(key, times, verdicts) for key in keys]
    return scroll(tag("table", tag("thead", groups, titles), tag("tbody", *lines), class_="rows compared"), "Comparison")


def _line(key: CellKey, times: Sequence[Mapping[CellKey, Typical]], verdicts: Sequence[Mapping[CellKey, ComparedCell]]) -> Element:
    line = tag("tr", tag("th", format_size(key.size_bytes), scope="row"))
    texts = (key.dtype, key.op, placement(key))
    add(line, *(tag("td", text or NONE, class_=classes) for text, (_, classes) in zip(texts, KEYS, strict=True)))
    base = times[0].get(key)
    for number, (one, judged) in enumerate(zip(times, verdicts, strict=True)):
        cell, verdict = one.get(key), judged.get(key)
        add(line, tag("td", time_text(cell.time_s) if cell else NONE, class_="first extra" if number else "first"))
        add(line, tag("td", bandwidth_text(cell.busbw) if cell else NONE, class_="extra"))
        if number:
            add(line, tag("td", _ratio(base, cell, verdict), _interval(verdict)))
        if judged:
            said = verdict.verdict.value if verdict else ""
            add(line, tag("td", said or NONE, class_=f"words c-{said}" if said else "words"))
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
    return tag("small", f" {interval_text(verdict)}", class_="extra")
