"""Markdown tables for the reference pages."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a blank line after it; bars in cells are escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return (
        "".join("| " + " | ".join(_cell(value) for value in line) + " |\n" for line in lines) + "\n"
    )


def field_table(rows: Sequence[Sequence[str]]) -> str:
    """A table of fields; without the last column where none has a meaning of its own."""
    titles = ("field", "type", "default", "meaning")
    shown = len(titles) if any(row[-1] for row in rows) else len(titles) - 1
    return table(titles[:shown], [row[:shown] for row in rows])


def code(text: object) -> str:
    """`text`, or nothing for an empty one."""
    return f"`{text}`" if str(text) else ""


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
