"""Dispatch and combine as parts of a page: a table for each direction, and what it counts."""

from xml.etree.ElementTree import Element

from busbw.moe import text
from busbw.moe.types import MoeResult
from busbw.moe.volumes import DIRECTIONS
from busbw.ui.html.element import tag
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table


def parts(result: MoeResult) -> list[Element]:
    """The section of a report."""
    found = list(prose(text.header(result)))
    for direction in DIRECTIONS:
        rows = [row for row in result.rows if row.direction == direction]
        if rows:
            found.append(tag("h3", direction))
            found.append(column_table(text.columns(rows), rows, direction, text.DROP_ORDER))
    return [*found, *(tag("p", line, class_="note") for line in text.legend(result))]
