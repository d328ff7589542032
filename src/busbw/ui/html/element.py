"""HTML as a tree of elements, escaped when it is written, so that no text of a result becomes
markup.
"""

import re
from xml.etree.ElementTree import Element, tostring

from busbw.core.unseen import UNSEEN

Child = Element | str | None

# What HTML forbids or a browser would not show in its place: what is not seen, halves of
# surrogates, noncharacters.
_UNFIT = re.compile(f"[{UNSEEN}\r\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def tag(name: str, /, *children: Child, **attributes: object) -> Element:
    """An element with texts and elements in order; None leaves a child or an attribute out.

    Attributes are spelled as Python has to: `class_` is class, `aria_hidden` is aria-hidden.
    """
    named = {
        key.rstrip("_").replace("_", "-"): clean(str(value))
        for key, value in attributes.items()
        if value is not None
    }
    return add(Element(name, named), *children)


def add(element: Element, *children: Child) -> Element:
    """The same element with more in it.

    An Element can have one parent only, as it holds the text after it.
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
    return _UNFIT.sub("\ufffd", text)


def document(root: Element) -> bytes:
    """The page as UTF-8 with its doctype.

    The content of style is written as it is, so it must not come from a result.
    """
    return b"<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html").encode() + b"\n"
