"""Reads pickles of plain containers: nothing in them can name code. A cut-off one gives the values that are complete."""

import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

_DEEPEST = 8


class Unreadable(Exception):
    """The bytes are no pickle of plain containers; `found` are the values that were complete."""

    def __init__(self, reason: str, found: list[Any]) -> None:
        super().__init__(reason)
        self.found = found


class _Reader(pickle._Unpickler):  # the one in Python keeps its stack, and so what was read
    stack: list[Any]
    metastack: list[list[Any]]

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not loaded")

    def get_extension(self, code: int) -> NoReturn:
        raise pickle.UnpicklingError("it names code by number, which is not loaded")


def load(data: bytes) -> Any:
    """The value in a pickle; Unreadable if it is broken, or holds anything but containers, text and numbers."""
    reader = _Reader(io.BytesIO(data))
    try:
        return reader.load()
    except Exception as error:  # bytes that are no pickle can raise anything
        found = [*getattr(reader, "stack", []), *(value for part in getattr(reader, "metastack", []) for value in part)]
        raise Unreadable(f"{type(error).__name__}: {error}", found) from error


def inside(values: list[Any], wanted: Callable[[Any], bool], depth: int = _DEEPEST) -> Iterator[Any]:
    """The values that are wanted, in lists and dictionaries too."""
    for value in values:
        if wanted(value):
            yield value
        elif depth and isinstance(value, dict):
            yield from inside(list(value.values()), wanted, depth - 1)
        elif depth and isinstance(value, list | tuple):
            yield from inside(list(value), wanted, depth - 1)
