"""Columns of every table: one definition each, printed as plain text, Markdown or HTML."""

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from busbw.core.result import Result

# its length indents what follows a line break: `PASS    `, `peak   `, `        fix: `
LABEL = re.compile(r"[A-Z]{4,7} +|\S+ {2,}| *")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    `value` takes the item that a line shows, and gives the text of the cell or a number.

    `width` is the least number of characters, for tables whose rows are printed one by one. Text is
    aligned to the right, or to the `left`. `shown` says for a result whether its table has the
    column.
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
        """One cell."""
        return str(self.value(*item))

    def pad(self, text: str, width: int) -> str:
        """The text aligned in `width` characters."""
        return text.ljust(width) if self.left else text.rjust(width)


def fitting(
    columns: Sequence[Column], widths: Sequence[int], limit: int | None, order: Sequence[str]
) -> list[int]:
    """Indices of the columns that fit `limit` characters, two spaces apart: columns are dropped
    in `order`, a list of titles.
    """
    kept = list(range(len(columns)))
    for title in order:
        if limit is None or sum(widths[at] + 2 for at in kept) - 2 <= limit:
            break
        kept = [at for at in kept if columns[at].title != title]
    return kept


def line(columns: Sequence[Column], texts: Iterable[str]) -> str:
    """Texts in columns of their least widths, two spaces apart."""
    return (
        "  ".join(
            column.pad(text, column.width) for column, text in zip(columns, texts, strict=True)
        ).rstrip()
        + "\n"
    )


def aligned(
    columns: Sequence[Column],
    items: Iterable[object],
    limit: int | None = None,
    order: Sequence[str] = (),
) -> str:
    """The whole table under its titles, each column as wide as its longest text; narrowed to
    `limit` characters as `fitting` does.
    """
    lines = [
        [column.heading for column in columns],
        *([column.text(item) for column in columns] for item in items),
    ]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    kept = fitting(columns, widths, limit, order)
    return "".join(
        "  ".join(columns[at].pad(texts[at], widths[at]) for at in kept).rstrip() + "\n"
        for texts in lines
    )


def wrapped(text: str, width: int | None) -> str:
    """The text with its long lines broken between words; what follows is aligned with the text
    after the line's label.
    """
    if width is None:
        return text
    return "".join(_wrapped(one, width) for one in text.splitlines(keepends=True))


def _wrapped(one: str, width: int) -> str:
    if len(one.rstrip("\n")) <= width:
        return one
    label = LABEL.match(one)
    start = label.end() if label else 0
    hanging = " " * (start if one[:start].strip() else start + 2)
    lines = textwrap.wrap(
        one[start:],
        width,
        initial_indent=one[:start],
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"
