"""Dispatch and combine as parts of a page: a table for each direction, and what it counts."""

from dataclasses import replace
from xml.etree.ElementTree import Element

from busbw.moe import text
from busbw.moe.types import PHASES, MoeResult
from busbw.moe.volumes import DIRECTIONS
from busbw.ui.columns import Column
from busbw.ui.html.element import tag
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table, foldable

UNITS = {
    "time": "us",
    **{phase: "us" for phases in PHASES.values() for phase in phases},
    "wire": "GB/s",
    "recv": "GB/s",
    "sel": "GB/s",
    "bound": "%",
}


def parts(result: MoeResult) -> list[Element]:
    """The section of a report. What the columns count is folded, as each file of a page has it."""
    found = list(prose(text.header(result)))
    for direction in DIRECTIONS:
        rows = [row for row in result.rows if row.direction == direction]
        if rows:
            columns = list(map(_with_unit, text.columns(rows)))
            found.append(tag("h3", direction))
            found.append(column_table(columns, rows, direction, text.DROP_ORDER))
    lines = text.legend(result)
    found += [tag("p", line) for line in lines if line not in text.DEFINITIONS]
    meanings = [tag("p", line) for line in lines if line in text.DEFINITIONS]
    return [*found, foldable("What the columns count", tag("div", *meanings), None)]


def _with_unit(column: Column) -> Column:
    return replace(column, unit=UNITS.get(column.title, column.unit))
