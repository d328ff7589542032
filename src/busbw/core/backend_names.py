"""Names of backends, as --backends takes them."""

from collections.abc import Mapping
from typing import TypeVar

from busbw.core.errors import UsageError, unknown

R = TypeVar("R")


def row_of(rows: Mapping[str, R], name: str) -> R:
    """The row called `name`; UsageError if there is none."""
    row = rows.get(name)
    if row is None:
        raise unknown("backend", name, {known: known for known in rows}, "--backends: ")
    return row


def parse_names(rows: Mapping[str, object], text: str) -> list[str]:
    """The names in `gloo, mpi`; none in an empty text. UsageError for one that has no row, or is
    named twice, and for commas alone.
    """
    names = [one.strip() for one in text.split(",") if one.strip()]
    if text and not names:
        raise UsageError(f"--backends '{text}': no backend is named", "leave it out to take all")
    for name in names:
        row_of(rows, name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--backends {text}: {twice[0]} is named twice", "name each once")
    return names
