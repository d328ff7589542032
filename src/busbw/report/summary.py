"""The head of a report: the title, a sentence, warnings and the main numbers."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import Figure, all_figures, headline, precise_figures, unchecked_sizes
from busbw.core.result import Result
from busbw.core.sizes import counted, format_size
from busbw.history.comparison_text import summary as comparison_summary
from busbw.measure.formats.ideal_text import larger_text
from busbw.measure.formats.table import peak_text
from busbw.model.fabric import lab_burst
from busbw.report.comparison import Comparisons
from busbw.report.rows import NO_VALUE, ReportInput, alike, drawable, unlike
from busbw.ui.html.element import tag
from busbw.ui.html.plot import swatch
from busbw.ui.html.table import facts, text_table
from busbw.ui.number_formats import (
    bandwidth_text,
    busbw_text,
    library,
    machine,
    nominal_text,
    percent_text,
    problems,
    time_text,
    uncertainty_text,
)


def heading(inputs: Sequence[ReportInput]) -> tuple[str, str]:
    """The title, and the machine and engine, or the number of set-ups if files differ in them."""
    titles = dict.fromkeys(source.result.spec.row.title for source in inputs)
    title = ", ".join(titles)
    machines = list(dict.fromkeys(_machine(source.result) for source in inputs))
    if len(machines) == 1:
        return title, machines[0]
    return title, f"{len(inputs)} results from {len(machines)} set-ups"


def sentence(inputs: Sequence[ReportInput], comparisons: Comparisons) -> list[Element]:
    """The summary of the page.

    Of one file these are peak and data check; of several a sentence for each comparison,
    and for each group that is too unlike the first.
    """
    if len(inputs) == 1:
        texts = [_sentence(inputs[0].result)]
    else:
        texts = _comparison_sentences(inputs, comparisons)
    return [tag("p", text, class_="lead") for text in texts]


def _sentence(result: Result) -> str:
    peak = peak_text(result)
    text = f"Peak busbw {peak}" if headline(result) else _capitalized(peak)
    return f"{text}; data check: {_data(result)}."


def _comparison_sentences(inputs: Sequence[ReportInput], comparisons: Comparisons) -> list[str]:
    texts = []
    for baseline, *others in alike(inputs):
        if baseline is not inputs[0]:
            texts.append(f"{unlike(inputs[0], baseline)}.")
        for source in others:
            if source.index in comparisons:
                text = comparison_summary(comparisons[source.index])
                texts.append(f"{source.letter} compared with {baseline.letter}: {text}.")
    return texts


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def warnings(inputs: Sequence[ReportInput]) -> list[Element]:
    """A paragraph each for wrong data, incomplete sweeps and errors."""
    elements = []
    for source in inputs:
        letter = f"{source.letter}: " if len(inputs) > 1 else ""
        texts = [f"{letter}{_capitalized(problem)}." for problem in problems(source.result)]
        elements += [tag("p", text, class_="warning") for text in texts]
    return elements


def summary(inputs: Sequence[ReportInput]) -> Element | None:
    """Tiles for one file, a table with a line for each of several."""
    if len(inputs) > 1:
        return _table(inputs)
    tiles = facts(
        (name, tag("span", tag("b", number), tag("small", note)))
        for name, number, note in _main_numbers(inputs[0].result)
        if number != NO_VALUE
    )
    if tiles is not None:
        tiles.set("class", "tiles")
    return tiles


def _main_numbers(result: Result) -> list[tuple[str, str, str]]:
    """Name, number, and the cell or bound that it belongs to."""
    peak, ideal = headline(result), result.ideal
    measured = [
        figure
        for figure in precise_figures(result) or all_figures(result)
        if drawable(figure.time_s)
    ]
    fastest = min(measured, key=lambda figure: figure.time_s, default=None)
    busbw, uncertainty = NO_VALUE, ""
    share, bound = NO_VALUE, ""
    if peak:
        busbw, uncertainty = f"{bandwidth_text(peak.busbw)} GB/s", uncertainty_text(peak)
    cell = ", ".join(filter(None, (uncertainty, _cell_text(peak))))
    if ideal:
        bound = f"{nominal_text(ideal.busbw)} GB/s, {ideal.algorithm}"
    if peak and ideal and peak.row.size_bytes > lab_burst(ideal):
        share = f"{percent_text(peak.cell.busbw, ideal.busbw)} %"
    shortest = time_text(fastest.cell.time_s) if fastest else NO_VALUE
    return [
        ("peak busbw", busbw, f"{cell}{larger_text(result)}"),
        ("of ideal", share, bound),
        ("shortest time", shortest, _cell_text(fastest)),
        ("data check", _data(result), counted(_checks(result), "check")),
    ]


def _cell_text(figure: Figure | None) -> str:
    return f"{format_size(figure.row.size_bytes)}, {figure.placement}" if figure else ""


def _checks(result: Result) -> int:
    return sum(figure.cell.wrong is not None for figure in all_figures(result))


def _data(result: Result) -> str:
    if result.wrong():
        return "failed"
    if not _checks(result):
        return "not checked"
    return "passed in part" if unchecked_sizes(result) else "passed"


def _table(inputs: Sequence[ReportInput]) -> Element:
    names = [name for name, _, _ in _main_numbers(inputs[0].result)]
    titles = ("file", "collective", "machine", "start", *names)
    return text_table(titles, map(_line, inputs), "Files")


def _line(source: ReportInput) -> list[str | Element]:
    result, peak = source.result, headline(source.result)
    _, *numbers = [number for _, number, _ in _main_numbers(result)]
    return [
        tag("span", swatch(source.index, "plain"), f" {source.title}"),
        result.spec.row.title,
        _machine(result) or NO_VALUE,
        result.start or NO_VALUE,
        f"{busbw_text(peak)}{larger_text(result)}" if peak else NO_VALUE,
        *numbers,
    ]


def _machine(result: Result) -> str:
    return ", ".join(filter(None, (machine(result), library(result))))
