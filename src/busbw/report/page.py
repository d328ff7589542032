"""The report: one self-contained page, without scripts, fonts or network. It begins with what is
wrong.
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from busbw.core.cells import timing
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.report.comparison import Comparisons, comparison
from busbw.report.embedded import NOTE, embedded
from busbw.report.judged import JudgedFile, of_sweep
from busbw.report.machine import machine, run
from busbw.report.other_reports import OtherReports
from busbw.report.plots import plots
from busbw.report.rows import LETTERS, ReportInput, alike, of_one_kind, rows
from busbw.report.summary import heading, sentence, summary, warnings
from busbw.report.worst import worst
from busbw.ui.html.element import add, findings, framed, section, tag

NO_OTHERS = OtherReports()
READING = (
    "time is that of one operation over all ranks. algbw is its bytes over its time; busbw is algbw"
    " times a factor that makes figures of different rank counts comparable with the rate of one"
    " link; ideal is busbw in percent of what the links could carry."
)
CLASSIC = (
    "Classic timing: time is the mean over n operations that were started back to back, with what"
    " starting them costs."
)
PRECISE = (
    "Precise timing: time is the median of n samples, interval where the true median lies with the"
    " confidence in the title, launch what the host needs to enqueue one operation, skew the part"
    " of time spent waiting for the rank that came last. Sampling stopped because the figure was as"
    " precise as asked (ok), the number of samples was given (fixed), time was up (budget), or more"
    " samples would not help (unstable)."
)


def page(
    named: Sequence[tuple[str, Result]],
    comparisons: Comparisons | None = None,
    *,
    embed: bool = False,
    others: OtherReports = NO_OTHERS,
) -> bytes:
    """The page as UTF-8 for 1 to 8 results, each with the name of its file.

    UsageError for more: there are no more distinct colors. `comparisons` holds the comparison of
    each file with the baseline of its group (`alike`), by the index of the file. Files of different
    kinds (`of_one_kind`) share no plot. With `embed` the page contains the results themselves.
    `others` are files that are not sweeps; each has its own section at the end.
    """
    comparisons = comparisons or {}
    if len(named) > len(LETTERS):
        raise UsageError(
            f"report: {len(named)} files, and a page shows at most {len(LETTERS)}",
            f"name {len(LETTERS)} files or fewer",
        )
    inputs = [ReportInput(index, name, result) for index, (name, result) in enumerate(named)]
    title, facts = heading(inputs)
    header = tag("header", tag("h1", title))
    if facts:
        add(header, tag("p", facts, class_="facts-line"))
    wrong = [*others.warnings(), *warnings(inputs)]
    slower = any(comparison.beyond() for comparison in comparisons.values())
    families = [list(map(_judged, inputs)), *others.judged()]
    add(header, *wrong, *worst(families, well=not wrong and not slower))
    add(header, *sentence(inputs, comparisons), summary(inputs), *others.notes())
    main = tag(
        "main",
        header,
        tag("section", tag("h2", "Sweep"), *_plots(inputs, comparisons), class_="sweep"),
        *_sections(inputs, comparisons),
        *others.sections(),
        section("How to read it", *(tag("p", text) for text in _explanations(inputs))),
    )
    if embed:
        add(main, section("Results", tag("p", NOTE), *embedded(named)))
    return framed(f"{title}, {facts}" if facts else title, main, others.style)


def _judged(source: ReportInput) -> JudgedFile:
    report = of_sweep(source.result, source.title)
    return JudgedFile(report, source.name, _findings_anchor(source))


def _findings_anchor(source: ReportInput) -> str:
    return f"findings-{source.letter}"


def _explanations(inputs: Sequence[ReportInput]) -> list[str]:
    timings = {timing(source.result) for source in inputs}
    texts = [READING]
    if "precise" in timings:
        texts.append(PRECISE)
    if "classic" in timings:
        texts.append(CLASSIC)
    return texts


def _sections(inputs: Sequence[ReportInput], comparisons: Comparisons) -> list[Element]:
    """The parts of a single file; for several files the comparisons, then a section for each."""
    if len(inputs) == 1:
        return _parts(inputs[0], "h2")
    groups = [group for group in alike(inputs) if len(group) > 1]
    return [
        *(section(_title(group, len(groups)), *comparison(group, comparisons)) for group in groups),
        *(section(source.title, *_parts(source, "h3")) for source in inputs),
    ]


def _title(group: Sequence[ReportInput], groups: int) -> str:
    return "Comparison" if groups == 1 else f"Comparison with {group[0].letter}"


def _plots(inputs: Sequence[ReportInput], comparisons: Comparisons) -> list[Element]:
    groups, elements = of_one_kind(inputs), []
    for group in groups:
        name = ""
        if len(groups) > 1:
            name = group[0].letter
            files = ", ".join(source.title for source in group)
            elements.append(tag("h3", f"{heading(group)[0]}: {files}"))
        elements.append(tag("div", *plots(group, comparisons, name)))
    return elements


def _parts(source: ReportInput, level: str) -> list[Element]:
    result, anchor = source.result, _findings_anchor(source)
    return [
        section("Findings", findings(result.findings), level=level, anchor=anchor),
        section("Rows", rows(result), level=level),
        section("Machine", *machine(result), level=level),
        section("What was run", run(result), level=level),
    ]
