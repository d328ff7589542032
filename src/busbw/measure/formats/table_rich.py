"""The table with color for a terminal.

The text is the same; verdicts, wrong data and bars stand out.
"""

from typing import Any

from rich.console import Console
from rich.text import Text

from busbw.core.cells import figures
from busbw.core.result import Result, ResultRow
from busbw.core.unseen import StyledText, escape_invisible
from busbw.measure.formats import table
from busbw.ui.number_formats import BARS

STYLES = (
    (r"^FAIL +|^error:|^wrong data:", "bold red"),
    (r"^WARN +|^UNKNOWN +|^the sweep did not end", "bold yellow"),
    (r"^PASS +", "bold green"),
    (r"^SKIP +", "dim"),
    (f"[{BARS}]+", "cyan"),
)


def header(result: Result, width: int | None = None, *, ran: bool = False) -> Text:
    """The plain header, dimmed so that numbers stand out."""
    return Text(escape_invisible(table.header(result, width, ran=ran)), style="dim")


def row(result: Result, row: ResultRow, width: int | None = None, *, ran: bool = False) -> Text:
    """The plain line, red if the row has wrong data."""
    wrong = any(figure.cell.wrong for figure in figures(row))
    return Text(
        escape_invisible(table.row(result, row, width, ran=ran)), style="red" if wrong else ""
    )


def footer(result: Result, width: int | None = None, *, ran: bool = False) -> Text:
    """The plain footer with its verdicts colored."""
    text = Text()
    for line in escape_invisible(table.footer(result, width, ran=ran)).splitlines(keepends=True):
        piece = Text(line)
        for pattern, style in STYLES:
            piece.highlight_regex(pattern, style)
        text.append_text(piece)
    return text


def escaped_header(*arguments: Any, **options: Any) -> StyledText:
    return _escaped(header(*arguments, **options))


def escaped_row(*arguments: Any, **options: Any) -> StyledText:
    return _escaped(row(*arguments, **options))


def escaped_footer(*arguments: Any, **options: Any) -> StyledText:
    return _escaped(footer(*arguments, **options))


def _escaped(text: Text) -> StyledText:
    """The text with the escape sequences of the terminal that TERM, COLORTERM and NO_COLOR name."""
    console = Console(force_terminal=True, soft_wrap=True)
    with console.capture() as capture:
        console.print(text, end="")
    return StyledText(capture.get())
