"""The head of the page: title, a sentence, warnings and the main numbers.

The results themselves in a page, so that its figures can be computed anew; and the way back.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import msgspec

from busbw.core import json_codec
from busbw.core.cells import Figure, every, headline, settled
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.core.sizes import counted, format_size
from busbw.history.comparison import summary as comparison_summary
from busbw.measure.formats.table import peak_text
from busbw.report.comparison import Comparisons
from busbw.report.machine import facts, table
from busbw.report.rows import NONE, ReportInput, alike, drawable, nominal, unlike
from busbw.ui.html.element import tag
from busbw.ui.html.plot import swatch
from busbw.ui.number_formats import busbw_text, library, machine, percent_text, problems, time_text

KIND = "busbw-result"
NOTE = (
    "The results are in this page. busbw compare FILE FILE --table 1 --table 2 computes the"
    " comparison of the first two anew, and busbw show FILE --table 1 prints the first; FILE is"
    " this page."
)
_BLOCK = re.compile(rb'<pre class="' + KIND.encode() + rb'" hidden="hidden">(.*?)</pre>', re.DOTALL)


def embedded(named: Sequence[tuple[str, Result]]) -> list[Element]:
    """A hidden element for each result, with JSON in ASCII: nothing of it is changed on its way."""
    return [tag("pre", _ascii(result), class_=KIND, hidden="hidden") for _, result in named]


def _ascii(result: Result) -> str:
    return json.dumps(msgspec.json.decode(json_codec.encode(result)), ensure_ascii=True)


def extract(page: bytes, table: int | None) -> bytes:
    """The JSON of the result with this number, the only one by default; UsageError where there
    is none, or no number for several.
    """
    found = _BLOCK.findall(page)
    if not found:
        raise UsageError(
            "a page without results in it", "only pages of busbw report --sign have them"
        )
    if table is None and len(found) > 1:
        raise UsageError(f"this page has {len(found)} results", "choose one: --table 1")
    if (table or 1) > len(found):
        raise UsageError(
            f"--table {table}: this page has {len(found)}", f"give a number from 1 to {len(found)}"
        )
    return html.unescape(found[(table or 1) - 1].decode()).encode()


def heading(inputs: Sequence[ReportInput]) -> tuple[str, str]:
    """The title, and the machine and engine where all files share them."""
    titles = dict.fromkeys(source.result.spec.row.title for source in inputs)
    lines = dict.fromkeys(_machine(source.result) for source in inputs)
    return ", ".join(titles), (
        next(iter(lines)) if len(lines) == 1 else f"{len(inputs)} results from {len(lines)} set-ups"
    )


def sentence(inputs: Sequence[ReportInput], found: Comparisons) -> list[Element]:
    """The summary: peak, data check and findings of one file; of several a sentence for each
    comparison, and for what is too unlike.
    """
    texts = []
    for first, *others in alike(inputs):
        texts += [f"{unlike(inputs[0], first)}."] if first is not inputs[0] else []
        texts += [
            f"{one.letter} compared with {first.letter}: {comparison_summary(found[one.index])}."
            for one in others
            if one.index in found
        ]
    if len(inputs) == 1:
        result = inputs[0].result
        top, bad = peak_text(result), Counter(finding.verdict.value for finding in result.findings)
        judged = ", ".join(
            counted(bad[verdict], noun)
            for verdict, noun in (("fail", "failure"), ("warn", "warning"))
            if bad[verdict]
        )
        known = (
            f"Peak busbw {top}" if headline(result) else top[:1].upper() + top[1:],
            f"data check: {_data(result)}",
            judged,
        )
        texts = ["; ".join(filter(None, known)) + "."]
    return [tag("p", text, class_="lead") for text in texts]


def warnings(inputs: Sequence[ReportInput]) -> list[Element]:
    """Wrong data, incomplete sweeps and errors."""
    owned = (
        (f"{source.letter}: " if len(inputs) > 1 else "", problem)
        for source in inputs
        for problem in problems(source.result)
    )
    return [
        tag("p", f"{owner}{problem[:1].upper()}{problem[1:]}.", class_="warning")
        for owner, problem in owned
    ]


def summary(inputs: Sequence[ReportInput]) -> Element | None:
    """Tiles for one file, a line each for several."""
    if len(inputs) > 1:
        return _table(inputs)
    known = [one for one in _figures(inputs[0].result) if one[1] != NONE]
    tiles = facts(
        (name, tag("span", tag("b", figure), tag("small", below))) for name, figure, below in known
    )
    if tiles is not None:
        tiles.set("class", "tiles")
    return tiles


def _figures(result: Result) -> list[tuple[str, str, str]]:
    """Name, number, and what it belongs to."""
    top, ideal = headline(result), result.ideal
    first = min(
        (one for one in settled(result) if drawable(one.time_s)),
        key=lambda one: one.time_s,
        default=None,
    )
    bound = f"{nominal(ideal.busbw)} GB/s, {ideal.algorithm}" if ideal else ""
    return [
        ("peak busbw", busbw_text(top) if top else NONE, _where(top)),
        (
            "of ideal",
            f"{percent_text(top.cell.busbw, ideal.busbw)} %" if top and ideal else NONE,
            bound,
        ),
        ("shortest time", time_text(first.cell.time_s) if first else NONE, _where(first)),
        ("data check", _data(result), counted(_checks(result), "check")),
    ]


def _where(figure: Figure | None) -> str:
    return f"{format_size(figure.row.size_bytes)}, {figure.placement}" if figure else ""


def _checks(result: Result) -> int:
    return sum(figure.cell.wrong is not None for figure in every(result))


def _data(result: Result) -> str:
    return "failed" if result.wrong() else "passed" if _checks(result) else "not checked"


def _table(inputs: Sequence[ReportInput]) -> Element:
    titles = (
        "file",
        "collective",
        "machine",
        "start",
        *(name for name, _, _ in _figures(inputs[0].result)),
    )
    lines: list[list[str | Element]] = []
    for source in inputs:
        result = source.result
        lines.append(
            [tag("span", swatch(source.index, "plain"), f" {source.title}"), result.spec.row.title]
        )
        lines[-1] += [
            _machine(result) or NONE,
            result.start or NONE,
            *(figure for _, figure, _ in _figures(result)),
        ]
    return table(titles, lines, "Files")


def _machine(result: Result) -> str:
    return ", ".join(filter(None, (machine(result), library(result))))
