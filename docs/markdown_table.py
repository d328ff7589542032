"""Markdown tables for the reference pages."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a blank line after it; bars in cells are escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return (
        "".join("| " + " | ".join(_cell(value) for value in line) + " |\n" for line in lines) + "\n"
    )


def code(text: object) -> str:
    """`text`, or nothing for an empty one."""
    return f"`{text}`" if str(text) else ""


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
