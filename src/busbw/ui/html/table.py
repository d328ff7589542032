"""Tables and lists of facts, in boxes that scroll sideways so that the page itself never does."""

from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element

from busbw.ui.columns import Column
from busbw.ui.html.element import tag

LONG_TEXT = 24  # characters
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


def column_table(columns: Sequence[Column], items: Iterable[object], name: str) -> Element:
    """A table of figures, one line for each item, whose columns are those of a text table.

    The first column names the lines. A wide table scrolls in its box, under that column.
    """
    head = tag("tr", *map(_title, columns))
    body = tag("tbody", *(tag("tr", *_figures(columns, item)) for item in items))
    return scroll(tag("table", tag("thead", head), body, class_="rows figures"), name)


def _title(column: Column) -> Element:
    unit = tag("small", column.unit) if column.unit else None
    space = " " if column.unit else None
    return tag("th", column.title, space, unit, scope="col", class_=_side(column))


def _side(column: Column) -> str | None:
    return "words" if column.left else None


def _figures(columns: Sequence[Column], item: object) -> Iterator[Element]:
    first, *others = columns
    yield tag("th", first.text(item), scope="row", class_=_side(first))
    for column in others:
        text = column.text(item)
        long = column.left and len(text) > LONG_TEXT
        yield tag("td", text, class_="words long" if long else _side(column))
