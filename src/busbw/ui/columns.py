"""Columns of every table: one definition each, printed as plain text, Markdown or HTML."""

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from busbw.core.result import Result

_CHECK = re.compile(r"\[(BW\d+) (\S+)\]$")  # a check's id and name stay together
_COMMA = re.compile(r",(?=\S)")
_CUT = "..."
_BREAK = "\v"  # white space to textwrap, and in no text
# `PASS    `, `peak   `, `        fix: `: what follows a line break is indented by its length
LABEL = re.compile(r"[A-Z]{4,7} +|NO DATA +|\S+ {2,}| *")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    `value` takes the item that a line shows, and returns the text of the cell or a number. `width`
    is the least number of characters, for tables whose rows are printed one by one. Text is aligned
    to the right, or to the `left`. `shown` says whether the table of a result has the column.
    """

    title: str
    value: Callable[..., object]
    unit: str = ""
    width: int = 0
    left: bool = False
    shown: Callable[[Result], bool] = lambda result: True

    @property
    def heading(self) -> str:
        """`time`, `algbw (GB/s)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def text(self, *item: object) -> str:
        return str(self.value(*item))

    def pad(self, text: str, width: int) -> str:
        """The text aligned in `width` characters."""
        return text.ljust(width) if self.left else text.rjust(width)


def fitting(
    columns: Sequence[Column], widths: Sequence[int], limit: int | None, order: Sequence[str]
) -> list[int]:
    """Indices of the columns that fit `limit` characters, two spaces apart.

    Columns are dropped in `order`, a list of titles.
    """
    kept = list(range(len(columns)))
    for title in order:
        if limit is None or sum(widths[index] + 2 for index in kept) - 2 <= limit:
            break
        kept = [index for index in kept if columns[index].title != title]
    return kept


def cut_in_middle(text: str, width: int) -> str:
    """The text in at most `width` characters: names of kernels differ at their ends."""
    if len(text) <= width:
        return text
    kept = width - len(_CUT)
    return f"{text[: kept // 2]}{_CUT}{text[kept // 2 - kept :]}"


def line(columns: Sequence[Column], texts: Iterable[str]) -> str:
    """Texts in columns of their least widths, two spaces apart."""
    return _joined(columns, texts, [column.width for column in columns])


def _joined(columns: Iterable[Column], texts: Iterable[str], widths: Iterable[int]) -> str:
    padded = (
        column.pad(text, width) for column, text, width in zip(columns, texts, widths, strict=True)
    )
    return "  ".join(padded).rstrip() + "\n"


def aligned(
    columns: Sequence[Column],
    items: Iterable[object],
    limit: int | None = None,
    order: Sequence[str] = (),
    *,
    wrap_last: bool = False,
) -> str:
    """The whole table under its titles, each column as wide as its longest text; narrowed to
    `limit` characters as `fitting` does.

    With `wrap_last` the last column is then broken into lines.
    """
    heading = [column.heading for column in columns]
    lines = [heading, *(_texts(columns, item) for item in items)]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    kept = fitting(columns, widths, limit, order)
    kept_columns, kept_widths = [columns[at] for at in kept], [widths[at] for at in kept]
    table = [_joined(kept_columns, [texts[at] for at in kept], kept_widths) for texts in lines]
    if wrap_last and limit is not None:
        indent = sum(width + 2 for width in kept_widths[:-1])
        table = [_wrap(text, limit, text[:indent]) for text in table]
    return "".join(table)


def _texts(columns: Sequence[Column], item: object) -> list[str]:
    return [column.text(item) for column in columns]


def wrapped(text: str, width: int | None) -> str:
    """The text with its long lines broken between words.

    What follows a break is aligned with the text after the line's label.
    """
    if width is None:
        return text
    return "".join(_wrap(line, width) for line in text.splitlines(keepends=True))


def _wrap(line: str, width: int, label: str | None = None) -> str:
    """The line in several; the first begins with the label, which is found if it is None."""
    if len(line.rstrip("\n")) <= width:
        return line
    if label is None:
        match = LABEL.match(line)
        label = match.group() if match else ""
    indent = len(label) if label.strip() else len(label) + 2
    line = _CHECK.sub("[\\1\xa0\\2]", line).replace(" %", "\xa0%")
    lines = textwrap.wrap(
        _breakable(line[len(label) :], width - indent),
        width,
        initial_indent=label,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return "\n".join(lines).replace(_BREAK, "").replace("\xa0", " ") + "\n"


def _breakable(text: str, room: int) -> str:
    """The text with break marks after the commas of words longer than a line."""
    if max(map(len, text.split()), default=0) <= room:
        return text
    return _COMMA.sub(f",{_BREAK}", text)
