"""A collective beside a load as parts of a page."""

from xml.etree.ElementTree import Element

from busbw.overlap import text
from busbw.overlap.types import OverlapResult
from busbw.ui.html.prose import prose
from busbw.ui.html.table import column_table


def parts(result: OverlapResult) -> list[Element]:
    """The whole result."""
    table = column_table(text.columns(result), result.rows, "Sizes")
    return [*prose(text.head(result)), table, *prose(text.foot(result))]
