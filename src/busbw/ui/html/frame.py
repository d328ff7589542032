"""What every page has: the head, the style, and sections under headings."""

from importlib import resources
from xml.etree.ElementTree import Element

from busbw.ui.html.element import document, tag

# markup from a file could not run
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def framed(title: str, main: Element, style: str = "") -> bytes:
    """A page as UTF-8.

    `style` is added to style.css; it is written as it is, so it must not come from a result.
    """
    own = resources.files("busbw.ui.html").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – busbw"),
        tag("style", own + style),
    )
    return document(tag("html", head, tag("body", main), lang="en"))


def section(title: str, *children: Element | None, level: str = "h2") -> Element:
    """A section under its heading."""
    return tag("section", tag(level, title), *children)
