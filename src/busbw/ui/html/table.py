"""Tables and lists of facts, in boxes that scroll sideways so that the page itself never does."""

from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element

from busbw.ui.columns import Column, fitting
from busbw.ui.html.element import breakable, tag

LONG_TEXT = 24  # characters
NARROW_CHARACTERS = 46  # of a table on a phone
NAME_CHARACTERS = 16  # of its first column, whose long names are broken
MAX_UNFOLDED_LINES = 16  # at most so many lines are not folded


def scroll(content: Element, name: str) -> Element:
    """A box that scrolls sideways, reachable by keyboard."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=name)


def facts(pairs: Iterable[tuple[str, str | Element]]) -> Element | None:
    """Names and values as a definition list without empty values; None if all are empty."""
    known = [
        tag("div", tag("dt", name), tag("dd", value))
        for name, value in pairs
        if isinstance(value, Element) or value
    ]
    return tag("dl", *known, class_="facts") if known else None


def text_table(
    titles: Sequence[str], lines: Iterable[Sequence[str | Element]], name: str
) -> Element:
    """A table of texts whose first column names its lines.

    Only long names are broken. On a narrow screen each line is a block, with the titles before
    the texts.
    """
    head = tag("tr", *(tag("th", title, scope="col") for title in titles))
    body = (
        tag("tr", _name_cell(name_of_line), *map(_text_cell, texts, titles[1:]))
        for name_of_line, *texts in lines
    )
    return scroll(tag("table", tag("thead", head), tag("tbody", *body), class_="text"), name)


def _name_cell(name: str | Element) -> Element:
    text = name if isinstance(name, str) else "".join(name.itertext())
    return tag("th", name, scope="row", class_="long" if len(text) > LONG_TEXT else None)


def _text_cell(text: str | Element, title: str) -> Element:
    """A cell; narrow screens show its title before it.

    A long text keeps a minimum width, so that the box scrolls.
    """
    long = isinstance(text, str) and len(text) > LONG_TEXT
    return tag("td", text, class_="long" if long else None, data_title=title)


def foldable(title: str, content: Element, lines: int | None) -> Element:
    """Content under its title, folded if it has more than MAX_UNFOLDED_LINES lines, or None."""
    open = "" if lines is not None and lines <= MAX_UNFOLDED_LINES else None
    return tag("details", tag("summary", title), content, open=open)


def column_table(
    columns: Sequence[Column], items: Iterable[object], name: str, order: Sequence[str] = ()
) -> Element:
    """A table of figures, one line for each item, whose columns are those of a text table.

    The first column names the lines. On a phone columns are left out in `order`, a list of titles,
    until the table fits. If it still does not, it scrolls in its box, under the first column.
    """
    lines = [[column.text(item) for column in columns] for item in items]
    kept = fitting(columns, _widths(columns, lines), NARROW_CHARACTERS, order)
    kinds = [_kind(column, at in kept) for at, column in enumerate(columns)]
    head = tag("tr", *map(_title, columns, kinds))
    body = tag("tbody", *(tag("tr", *_figures(line, kinds)) for line in lines))
    note = None
    if len(kept) < len(columns):
        note = tag("caption", "A wider window shows more columns.", class_="note")
    return scroll(tag("table", note, tag("thead", head), body, class_="rows figures"), name)


def _widths(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> list[int]:
    """Characters of each column on a phone, where titles and texts are broken between words."""
    widths = []
    for at, column in enumerate(columns):
        texts = [line[at] for line in lines]
        words = [*column.title.split(), column.unit]
        words += " ".join(texts).split() if column.left else texts
        widths.append(max(map(len, words)))
    return [min(widths[0], NAME_CHARACTERS), *widths[1:]]


def _title(column: Column, kind: str) -> Element:
    unit = tag("small", column.unit) if column.unit else None
    space = " " if column.unit else None
    return tag("th", column.title, space, unit, scope="col", class_=kind or None)


def _kind(column: Column, fits: bool) -> str:
    return " ".join(name for name, has in (("words", column.left), ("extra", not fits)) if has)


def _figures(texts: Sequence[str], kinds: Sequence[str]) -> Iterator[Element]:
    yield tag("th", *breakable(texts[0]), scope="row", class_=kinds[0] or None)
    for text, kind in zip(texts[1:], kinds[1:], strict=True):
        long = "words" in kind and len(text) > LONG_TEXT
        yield tag("td", text, class_=f"{kind} long" if long else kind or None)
