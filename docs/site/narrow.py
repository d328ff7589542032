"""What a narrow screen needs of a page: places to break long names, figures that stay whole, and
tables of text whose rows can become blocks.
"""

import re
from collections.abc import Sequence
from typing import Any

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString
from sphinx.application import Sphinx

LONG_WORD = 17  # characters; shorter names are not broken
BREAKS = re.compile(r"(?<=[/_,=(:+-])(?=[\w<{\[*])|(?<=\.)(?=\w{5})|(?<=[a-z])(?=[A-Z])")
FIGURE = re.compile(r"[-+~<±]?\d")
UNIT = r"(?:[KMGT]i?B|B|[num]?s|[KMG]B(?:/s)?|[KMG]bit/s|GPUs?)\b|%"
GROUPS = re.compile(
    rf"(\([^()]{{1,20}}\)|[-+~]?[\d.,]+(?: (?:±|/) [\d.,]+)+|[-+~]?[\d.,]+ (?:{UNIT}))"
)
OPTION = re.compile(r"((?<![\w-])--?[a-z][\w-]*(?:=\w+)?)")  # not broken after its hyphens
FEW_COLUMNS = 2  # of tables that always fit
CROWDED = 4  # columns; names in the first column of more are broken on wide screens too
WIDEST = 45  # characters of a row on a phone
LONG_TEXT, SHORT_TEXT = 40, 16  # characters of a cell


def adapt(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Rewrite the body of one page."""
    if "body" not in context:
        return
    body = BeautifulSoup(context["body"], "html.parser")
    for element in body.select("h1, h2, h3, p"):
        _keep_whole(body, element, OPTION)
    for table in body.find_all("table"):
        _adapt_table(body, table)
    for element in body.select("h1, td a, code.literal"):
        _add_breaks(body, element)
    context["body"] = str(body)


def _adapt_table(body: BeautifulSoup, table: Tag) -> None:
    titles = [title.get_text(" ", strip=True) for title in table.select("thead th")]
    rows = [row.find_all("td") for row in table.select("tbody tr")]
    cells = [cell for row in rows for cell in row if cell.get_text(strip=True)]
    figures = [cell for cell in cells if FIGURE.match(cell.get_text(strip=True))]
    for cell in figures:
        _keep_whole(body, cell, GROUPS)
    if not titles or any(len(row) != len(titles) for row in rows):
        return  # not a table of Markdown
    lengths = [[len(cell.get_text(strip=True)) for cell in row] for row in rows]
    widths = [min(max(column), LONG_TEXT) for column in zip(*lengths, strict=True)]
    if len(widths) > CROWDED:
        _add_class(table, "crowded")
    of_text = 2 * len(figures) < len(cells)  # a table of figures is read down its columns
    if of_text and len(widths) > FEW_COLUMNS and sum(widths) > WIDEST:
        _make_blocks(table, titles, rows, widths)


def _make_blocks(
    table: Tag, titles: Sequence[str], rows: Sequence[Sequence[Tag]], widths: Sequence[int]
) -> None:
    """Give each cell its title; those of short columns can share a line."""
    _add_class(table, "blocks")
    for row in rows:
        for at, cell in enumerate(row):
            if not cell.get_text(strip=True):
                _add_class(cell, "empty")
                continue
            if at and titles[at]:
                cell["data-title"] = titles[at]
            if at and widths[at] <= SHORT_TEXT:
                _add_class(cell, "short")


def _add_class(element: Tag, name: str) -> None:
    element["class"] = " ".join([*element.get_attribute_list("class"), name])


def _keep_whole(body: BeautifulSoup, element: Tag, groups: re.Pattern[str]) -> None:
    """Wrap what is not to be broken; code is left as it is."""
    for text in element.find_all(string=groups):
        if text.find_parent("code"):
            continue
        parts: list[NavigableString | Tag] = []
        for at, part in enumerate(groups.split(str(text))):
            if at % 2:
                kind = "pair" if " / " in part else "whole"  # pairs are broken on wide screens
                whole = body.new_tag("span", attrs={"class": kind})
                whole.string = part
                parts.append(whole)
            elif part:
                parts.append(NavigableString(part))
        text.replace_with(*parts)


def _add_breaks(body: BeautifulSoup, element: Tag) -> None:
    """Let a long word break after its marks, and between the words of `CamelCase`."""
    for text in element.find_all(string=True):
        if all(len(word) < LONG_WORD for word in text.split()):
            continue
        parts: list[NavigableString | Tag] = []
        for at, part in enumerate(BREAKS.split(str(text))):
            if at:
                parts.append(body.new_tag("wbr"))
            parts.append(NavigableString(part))
        text.replace_with(*parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("html-page-context", adapt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
