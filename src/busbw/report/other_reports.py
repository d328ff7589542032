"""The sections of a report for files that are not sweeps, such as trainings, plans, patterns,
checks, tests of links and predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element

from busbw.check import html as check_html
from busbw.check.types import CheckReport, ClusterReport, node_names
from busbw.core.comparison import Comparison
from busbw.core.link_samples import WatchInterval
from busbw.core.pattern import Pattern
from busbw.core.result import Outcome
from busbw.core.sizes import counted
from busbw.link import html as link_html
from busbw.link.types import LinkReport
from busbw.model import html as model_html
from busbw.model.findings import all_findings
from busbw.model.reference.curves import ReferenceTable
from busbw.model.types import Explanation, PatternPrediction, Prediction
from busbw.pattern import html as pattern_html
from busbw.reference import comparison as reference
from busbw.report import text_tables
from busbw.report.file_kinds import FileContent
from busbw.report.judged import JudgedFile, of_document
from busbw.report.worst import worst
from busbw.tune.types import Tuning
from busbw.ui.html.element import findings, framed, section, tag
from busbw.ui.html.table import scroll
from busbw.ui.number_formats import run_problems
from busbw.watch import html as watch_html

# The parts of a section, by what its file holds; others have `parts` of their own, or the text of
# busbw show.
PARTS: dict[type, Callable[[Any], list[Element]]] = {
    LinkReport: partial(link_html.parts, level="h3"),
    CheckReport: check_html.one_machine,
    ClusterReport: check_html.several_machines,
    PatternPrediction: model_html.pattern_prediction,
    Explanation: model_html.explanation,
    Comparison: text_tables.comparison_parts,
    Tuning: text_tables.tuning_parts,
    reference.ReferenceComparison: text_tables.reference_parts,
    ReferenceTable: text_tables.curves_parts,
}
NARROW_COLUMNS = 46  # of a text on a phone
NODES = "nodes"  # the id of the section of several nodes
ONLY = "only"  # the class of a section that is alone: the page's title names it
Named = tuple[str, FileContent]  # a file name and what it holds


@dataclass(frozen=True, slots=True)
class OtherReports:
    """The files of a report that are not sweeps, the `skipped` files with the reasons, and what was
    left `unread` in its directories.
    """

    files: Sequence[Named] = ()
    skipped: Sequence[tuple[str, str]] = field(default=())
    unread: Sequence[str] = ()

    @property
    def style(self) -> str:
        """The rules that their sections need besides style.css."""
        tests_of_links = any(isinstance(document.held, LinkReport) for _, document in self.files)
        return link_html.STYLE if tests_of_links else ""

    def warnings(self) -> list[Element]:
        """A paragraph for each file that was skipped, each run that did not end, and each error."""
        texts = [f"{name} was skipped: {reason}" for name, reason in self.skipped]
        texts += [
            f"{name}: {problem}"
            for name, document in self.files
            if isinstance(document.held, Outcome)
            for problem in run_problems(document.held)
        ]
        return [tag("p", f"{text}.", class_="warning") for text in texts]

    def notes(self) -> list[Element]:
        return [tag("p", f"{text}.", class_="note") for text in self.unread]

    def sections(self) -> list[Element]:
        """One section for all checks of machines, and one for each other file."""
        checks = self._checks()
        sections = [_machines(checks)] if checks else []
        return sections + [
            section(f"{document.title}: {name}", *_parts(document, anchor), anchor=anchor)
            for anchor, name, document in self._anchored()
            if document not in checks
        ]

    def judged(self) -> list[list[JudgedFile]]:
        """The findings of all checks of machines, and those of each other file."""
        checks = self._checks()
        families: dict[str, list[JudgedFile]] = {}
        for anchor, name, document in self._anchored():
            section_id = NODES if document in checks else anchor
            families.setdefault(section_id, []).extend(
                JudgedFile(report, name, section_id) for report in of_document(document)
            )
        return list(families.values())

    def _anchored(self) -> list[tuple[str, str, FileContent]]:
        """The files with the ids of their sections."""
        return [(f"file{at}", name, document) for at, (name, document) in enumerate(self.files)]

    def titles(self) -> list[str]:
        """What the files are, each kind once."""
        checks = self._checks()
        others = [document.title for _, document in self.files if document not in checks]
        return list(dict.fromkeys([_machines_title(checks), *others] if checks else others))

    def _checks(self) -> list[FileContent]:
        """The checks of machines, if there are several to be compared."""
        checks = [document for _, document in self.files if isinstance(document.held, CheckReport)]
        return checks if len(checks) > 1 else []


def page(others: OtherReports) -> bytes:
    """A report without a sweep."""
    title = ", ".join(others.titles())
    sections = others.sections()
    if len(sections) == 1:
        sections[0].set("class", ONLY)
    warnings = others.warnings()
    header = tag(
        "header",
        tag("h1", title),
        tag("p", _files_text(others), class_="facts-line"),
        *warnings,
        *worst(others.judged(), well=not warnings),
        *others.notes(),
    )
    main = tag("main", header, *sections)
    return framed(title, main, others.style)


def _files_text(others: OtherReports) -> str:
    """The name of the only file, or how many there are."""
    if len(others.files) == 1:
        return others.files[0][0]
    return counted(len(others.files), "file")


def _machines_title(documents: Sequence[FileContent]) -> str:
    return f"Check of {counted(len(documents), 'node')}"


def _machines(documents: Sequence[FileContent]) -> Element:
    """The checks of several machines; they are compared in the facts that their snapshots have."""
    from busbw.check.cluster import differences  # imports all checks

    reports = [document.held for document in documents if isinstance(document.held, CheckReport)]
    named = zip(node_names(reports), documents, strict=True)
    facts = {name: document.facts for name, document in named if document.facts is not None}
    cluster = ClusterReport(differences=differences(facts), nodes=reports)
    return section(_machines_title(documents), *check_html.several_machines(cluster), anchor=NODES)


def _parts(document: FileContent, prefix: str) -> list[Element]:
    """The plots and tables of a file, or the text that busbw show prints."""
    if watched := document.intervals_of(WatchInterval):
        return watch_html.parts(watched, prefix)
    if isinstance(document.held, Prediction):
        return model_html.prediction(document.held, prefix)
    if isinstance(document.held, Pattern):
        return pattern_html.pattern(document.held, prefix)
    if document.parts is not None:
        parts_of_run = [_prefixed(part, prefix) for part in document.parts()]
        if isinstance(document.held, Outcome) and (found := all_findings(document.held)):
            parts_of_run.append(section("Findings", findings(found), level="h3"))
        return parts_of_run
    parts = PARTS.get(type(document.held))
    if parts is not None:
        return parts(document.held)
    return [_text(document, None, "wide"), _text(document, NARROW_COLUMNS, "narrow")]


def _prefixed(part: Element, prefix: str) -> Element:
    """The part with ids that begin with `prefix`: a page may have two results of one kind."""
    for element in part.iter():
        for name in ("id", "aria-labelledby"):
            if ids := element.get(name):
                element.set(name, " ".join(f"{prefix}-{one}" for one in ids.split()))
    return part


def _text(document: FileContent, width: int | None, kind: str) -> Element:
    """The text that busbw show prints in so many columns, for wide or for narrow windows."""
    text = tag("pre", document.text(width).rstrip("\n"), class_="text-output")
    box = scroll(text, document.title)
    box.set("class", f"scroll {kind}-only")
    return box
