"""HTML as a tree of elements, and the parts that every page has.

Elements are escaped when they are written, so that no text of a result becomes markup. `framed`
adds the head and the style; `findings` shows findings as cards.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from xml.etree.ElementTree import Element, tostring

from busbw.core.finding import RunFinding
from busbw.core.unseen import UNSEEN

Child = Element | str | None

# What HTML forbids or browsers do not show: invisible characters, halves of surrogates,
# noncharacters.
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
)
_UNFIT = re.compile(f"[{UNSEEN}\r\ud800-\udfff{_NONCHARACTERS}]")
# before a number, and where a note says what it means
_PLUS_MINUS = re.compile(r"(?<![^\s(])\+-(?=[\d ])")
_AS_TYPED = ("code", "pre")  # commands, and what a terminal shows
_CODE = re.compile(r"`([^`]+)`")
# so that markup from a file cannot run
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def tag(name: str, /, *children: Child, **attributes: object) -> Element:
    """An element with its texts and elements in order; None leaves a child or an attribute out.

    Attributes are spelled as Python names: `class_` is class, `aria_hidden` is aria-hidden.
    """
    html_attributes = {
        _html_name(key): clean(str(value)) for key, value in attributes.items() if value is not None
    }
    return add(Element(name, html_attributes), *children)


@cache
def _html_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def add(element: Element, *children: Child) -> Element:
    """Append texts and elements to an element, and return it.

    An Element has only one parent, because it holds the text after it.
    """
    for child in children:
        if isinstance(child, Element):
            element.append(child)
        elif child and len(element):
            element[-1].tail = (element[-1].tail or "") + clean(child)
        elif child:
            element.text = (element.text or "") + clean(child)
    return element


def clean(text: str) -> str:
    """The text with U+FFFD for each character that a page must not hold."""
    if text.isascii() and text.isprintable():
        return text
    return _UNFIT.sub("\ufffd", text)


def breakable(name: str) -> Iterator[Child]:
    """The name with a place to break after each `+`, as of `int4+last=powersgd`."""
    first, *others = name.split("+")
    yield first
    for part in others:
        yield from ("+", tag("wbr"), part)


def document(root: Element) -> bytes:
    """The page as UTF-8 with its doctype.

    The content of style is written as it is, so it must not come from a result.
    """
    return b"<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html").encode() + b"\n"


def framed(title: str, main: Element, style: str = "") -> bytes:
    """A page as UTF-8.

    `style` is added to style.css; it is written as it is, so it must not come from a result.
    """
    common = resources.files("busbw.ui.html").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – busbw"),
        tag("style", common + style),
    )
    _write_plus_minus(main)
    return document(tag("html", head, tag("body", main), lang="en"))


def _write_plus_minus(main: Element) -> None:
    """Terminals show `+-`, pages ±."""
    for element in main.iter():
        if element.text and element.tag not in _AS_TYPED:
            element.text = _PLUS_MINUS.sub("±", element.text)
        if element.tail:
            element.tail = _PLUS_MINUS.sub("±", element.tail)


def section(
    title: str, *children: Element | None, level: str = "h2", anchor: str | None = None
) -> Element:
    """A part of a page under its title; a link leads to its `anchor`."""
    return tag("section", tag(level, title), *children, id=anchor)


def findings(findings: Sequence[RunFinding]) -> Element:
    """A list with a card for each finding: verdict, message, evidence and fix."""
    if not findings:
        return tag("p", "The file holds no findings.", class_="note")
    return tag("ul", *map(_card, findings), class_="findings")


def _card(finding: RunFinding) -> Element:
    verdict = finding.verdict.value
    details = [
        tag("p", tag("span", name, class_="name"), " ", *with_code(text), class_=name)
        for name, text in (("evidence", finding.evidence), ("fix", finding.fix))
        if text
    ]
    head = tag(
        "p",
        tag("strong", verdict, class_=f"badge v-{verdict}"),
        " ",
        *with_code(finding.message),
        " ",
        tag("code", finding.id),
    )
    return tag("li", head, *details, class_=f"v-{verdict}")


def with_code(text: str) -> list[Child]:
    """The text with an element for each command that stands between backticks."""
    parts = _CODE.split(text)
    return [tag("code", part) if at % 2 else part for at, part in enumerate(parts)]
