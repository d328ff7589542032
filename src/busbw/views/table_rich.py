"""The table with colour for a terminal: the same text, with verdicts, wrong data and bars standing out."""

from rich.text import Text

from busbw.core.result import Result, Row
from busbw.views import table
from busbw.views.words import BARS

STYLES = (
    (r"^FAIL +|^error:|^wrong data:", "bold red"),
    (r"^WARN +|^UNKNOWN +|^the sweep did not end", "bold yellow"),
    (r"^PASS +", "bold green"),
    (r"^SKIP +", "dim"),
    (f"[{BARS}]+", "cyan"),
)


def header(result: Result) -> Text:
    """The plain header, dimmed so that figures stand out."""
    return Text(table.header(result), style="dim")


def row(result: Result, row: Row) -> Text:
    """The plain line, red when the row has wrong data."""
    wrong = any(cell is not None and cell.wrong for cell in (row.out_of_place, row.in_place))
    return Text(table.row(result, row), style="red" if wrong else "")


def footer(result: Result) -> Text:
    """The plain footer with its verdicts coloured."""
    text = Text()
    for line in table.footer(result).splitlines(keepends=True):
        piece = Text(line)
        for pattern, style in STYLES:
            piece.highlight_regex(pattern, style)
        text.append_text(piece)
    return text
