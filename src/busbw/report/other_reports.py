"""The sections of a report for files that are not sweeps, such as trainings, plans, patterns,
checks, tests of links and predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from busbw.core.sizes import counted
from busbw.link import html as link_html
from busbw.link.types import LinkReport
from busbw.report.file_kinds import Document
from busbw.ui.html.element import add, framed, section, tag

Named = tuple[str, Document]  # a file name and what it holds


@dataclass(frozen=True, slots=True)
class Others:
    """The files of a report that are not sweeps, and the `skipped` files with the reasons."""

    files: Sequence[Named] = ()
    skipped: Sequence[tuple[str, str]] = field(default=())

    @property
    def style(self) -> str:
        """The rules that their sections need besides style.css."""
        tests_of_links = any(isinstance(document.held, LinkReport) for _, document in self.files)
        return link_html.STYLE if tests_of_links else ""

    def warnings(self) -> list[Element]:
        """A paragraph for each file that was skipped."""
        return [
            tag("p", f"{name} was skipped: {reason}.", class_="warning")
            for name, reason in self.skipped
        ]

    def sections(self) -> list[Element]:
        """A section for each file."""
        return [
            section(f"{document.title}: {name}", *_parts(document)) for name, document in self.files
        ]


def page(others: Others) -> bytes:
    """A report without a sweep."""
    titles = list(dict.fromkeys(document.title for _, document in others.files))
    title = ", ".join(titles)
    header = tag(
        "header",
        tag("h1", title),
        tag("p", counted(len(others.files), "file"), class_="facts-line"),
    )
    main = tag("main", add(header, *others.warnings()), *others.sections())
    return framed(title, main, others.style)


def _parts(document: Document) -> list[Element]:
    """The heat maps of a test of links; for other files the text that busbw show prints."""
    if isinstance(document.held, LinkReport):
        return link_html.parts(document.held, level="h3")
    text = tag("pre", document.text(None).rstrip("\n"), class_="text-output")
    return [
        tag("div", text, class_="scroll", tabindex="0", role="region", aria_label=document.title)
    ]
