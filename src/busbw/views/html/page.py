"""The report: results in, one page out that needs nothing else, no script, no font, no network."""

from collections.abc import Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element

from busbw.core.cells import timing
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.views.html.comparison import Comparisons, comparison
from busbw.views.html.findings import findings
from busbw.views.html.machine import machine, run
from busbw.views.html.plots import plots
from busbw.views.html.rows import rows
from busbw.views.html.sheet import LETTERS, Sheet
from busbw.views.html.summary import heading, summary, warnings
from busbw.views.html.tree import add, document, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"  # were markup to slip in, nothing would run
READING = (
    "time is that of one operation over all ranks. algbw is its bytes over its time; busbw is algbw times a factor that makes figures of "
    "different rank counts comparable with the rate of one link; ideal is busbw in percent of what the links could carry."
)
CLASSIC = "Classic timing: time is the mean over n operations that were started back to back, with what starting them costs."
PRECISE = (
    "Precise timing: time is the median of n samples, interval where the true median lies with the confidence in the title, launch what "
    "the host needs to enqueue one operation, skew the part of time spent waiting for the rank that came last. Sampling stopped because "
    "the figure was as precise as asked (ok), the number of samples was given (fixed), time was up (budget), or more samples would not "
    "help (unstable)."
)


def page(named: Sequence[tuple[str, Result]], found: Comparisons | None = None) -> bytes:
    """The page as UTF-8 for 1 to 8 results with the names of their files; UsageError for more, which no plot could tell apart.

    `found` holds the comparison of each later file with the first; where there is none, ratios stand alone.
    """
    if len(named) > len(LETTERS):
        raise UsageError(f"report: {len(named)} files; one page tells {len(LETTERS)} apart", f"name {len(LETTERS)} files or fewer")
    sheets = [Sheet(index, name, result) for index, (name, result) in enumerate(named)]
    title, facts = heading(sheets)
    main = tag("main", *_first(sheets, title, facts))
    add(main, *_several(sheets, found) if len(sheets) > 1 else _one(sheets[0].result))
    add(main, section("How to read it", *(tag("p", words) for words in _reading(sheets))))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title}, {facts} – busbw" if facts else f"{title} – busbw"),
        tag("style", files("busbw.views.html").joinpath("style.css").read_text(encoding="utf-8")),
    )
    return document(tag("html", head, tag("body", main), lang="en"))


def section(title: str, *children: Element | None) -> Element:
    """A section under a heading of the second level."""
    return tag("section", tag("h2", title), *children)


def _reading(sheets: Sequence[Sheet]) -> list[str]:
    ways = {timing(sheet.result) for sheet in sheets}
    return [READING, *(words for way, words in (("precise", PRECISE), ("classic", CLASSIC)) if way in ways)]


def _first(sheets: Sequence[Sheet], title: str, facts: str) -> list[Element]:
    header = tag("header", tag("h1", title), tag("p", facts, class_="facts-line") if facts else None, *warnings(sheets))
    return [add(header, summary(sheets)), add(tag("section", tag("h2", "Sweep"), class_="sweep"), tag("div", *plots(sheets)))]


def _one(result: Result) -> list[Element]:
    return [
        section("Findings", findings(result.findings)),
        section("Rows", rows(result)),
        section("Machine", *machine(result)),
        section("What was run", *run(result)),
    ]


def _several(sheets: Sequence[Sheet], found: Comparisons | None) -> list[Element]:
    return [section("Comparison", *comparison(sheets, found)), *(_file(sheet) for sheet in sheets)]


def _file(sheet: Sheet) -> Element:
    result = sheet.result
    parts = (
        ("Findings", [findings(result.findings)]),
        ("Rows", [rows(result)]),
        ("Machine", machine(result)),
        ("What was run", run(result)),
    )
    return section(f"{sheet.letter} {sheet.name}", *(tag("section", tag("h3", title), *content) for title, content in parts))
