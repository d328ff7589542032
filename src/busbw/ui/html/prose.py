"""Lines of a text as paragraphs of a page."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from busbw.ui.html.element import tag

INDENT = "  "  # of a line of code
COMMENT = "# "


def prose(text: str) -> Iterator[Element]:
    """A paragraph for each line; an indented one is code."""
    for line in text.splitlines():
        words = line.removeprefix(COMMENT).strip()
        if words:
            yield tag("p", tag("code", words) if line.startswith(INDENT) else words)
