"""Reads pickles of plain containers: nothing in them can name code, and none takes more time or
memory than its size allows.

A few bytes of a pickle can refer to the same list many times, in a list that is referred to many
times in turn: whoever looks at every value never ends. So values are counted as if each reference
were a copy. A cut-off pickle gives the values that are complete.
"""

import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

_DEEPEST = 8
_NESTED = 64  # containers in containers
_VALUES = 2_000_000  # that references may stand for, besides MULTIPLE for each byte
_MULTIPLE = 20  # stack traces are shared by the calls of a dump
_LETTERS = 64  # of a text that weigh as much as one value
_INTEGER_BITS = 64
_KEYS = (str, bytes, int, float, bool, type(None))


class Unreadable(Exception):
    """The bytes are no pickle of plain containers; `found` are the values that were complete."""

    def __init__(self, reason: str, found: list[Any]) -> None:
        super().__init__(reason)
        self.found = found


class _Reader(pickle._Unpickler):  # the one in Python keeps its stack, and so what was read
    stack: list[Any]
    metastack: list[list[Any]]
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not loaded")

    def get_extension(self, code: int) -> NoReturn:
        raise pickle.UnpicklingError("it names code by number, which is not loaded")

    def _room(self) -> NoReturn:
        raise pickle.UnpicklingError("it asks for memory that it does not fill")

    dispatch[pickle.BYTEARRAY8[0]] = _room


def _with_plain_keys(
    load: Callable[[_Reader], None], keys: Callable[[_Reader], list[Any]]
) -> Callable[[_Reader], None]:
    def checked(reader: _Reader) -> None:
        _keys(keys(reader))
        load(reader)

    return checked


# Where the keys of a dictionary or the items of a set are on the stack when an opcode adds them.
_ADDED: dict[bytes, Callable[[_Reader], list[Any]]] = {
    pickle.SETITEM: lambda reader: reader.stack[-2:-1],
    pickle.SETITEMS: lambda reader: reader.stack[::2],
    pickle.DICT: lambda reader: reader.stack[::2],
    pickle.ADDITEMS: lambda reader: reader.stack,
    pickle.FROZENSET: lambda reader: reader.stack,
}
for _opcode, _at in _ADDED.items():
    _Reader.dispatch[_opcode[0]] = _with_plain_keys(_Reader.dispatch[_opcode[0]], _at)


def _keys(values: list[Any]) -> None:
    """Keys are plain, as the hash of a tuple looks at every value in it, and long integers can
    all have the same.
    """
    for value in values:
        if not isinstance(value, _KEYS) or (
            isinstance(value, int) and value.bit_length() > _INTEGER_BITS
        ):
            raise pickle.UnpicklingError(f"a key that is a {type(value).__name__}")


def load(data: bytes) -> Any:
    """The value in a pickle; Unreadable if it is broken, or holds anything but containers, text
    and numbers.
    """
    reader = _Reader(io.BytesIO(data))
    most = _VALUES + _MULTIPLE * len(data)
    try:
        value = reader.load()
        _Weight(most).of(value)
    except Exception as error:  # bytes that are no pickle can raise anything
        found = [
            *getattr(reader, "stack", []),
            *(value for part in getattr(reader, "metastack", []) for value in part),
        ]
        raise Unreadable(f"{type(error).__name__}: {error}", list(_light(found, most))) from error
    return value


def _light(values: list[Any], most: int) -> Iterator[Any]:
    """Those of the values that one can look through, until they are too many."""
    weight, total = _Weight(most), 0
    for value in values:
        try:
            total += weight.of(value)
        except pickle.UnpicklingError:
            continue
        if total > most:
            return
        yield value


class _Weight:
    """How many values one meets who follows every reference; UnpicklingError for more than
    `most`, deep nesting, and one in itself.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # of a container: its values, and how deep they are nested
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, value: Any) -> int:
        """The values in this one, itself included."""
        open_ = [value]
        entered: set[int] = set()
        while open_:
            one = open_[-1]
            if id(one) in self._known or not _inner(one):
                self._check(one)
                open_.pop()
            elif id(one) in entered:
                self._known[id(one)] = self._sum(one)
            else:
                entered.add(id(one))
                missing = [
                    inner for inner in _inner(one) if _inner(inner) and id(inner) not in self._known
                ]
                if any(id(inner) in entered for inner in missing):
                    raise pickle.UnpicklingError(
                        "a container that contains itself, or is nested without end"
                    )
                open_ += missing
        return self._of_known(value)[0]

    def _check(self, one: Any) -> None:
        if isinstance(one, int) and one.bit_length() > _INTEGER_BITS:
            raise pickle.UnpicklingError(f"an integer of {one.bit_length()} bits")

    def _sum(self, one: Any) -> tuple[int, int]:
        weights = [self._of_known(inner) for inner in _inner(one)]
        values, depth = (
            1 + sum(values for values, _ in weights),
            1 + max(depth for _, depth in weights),
        )
        if values > self._most or depth > _NESTED:
            raise pickle.UnpicklingError(
                "references that stand for too many values"
                if values > self._most
                else "too deeply nested"
            )
        return values, depth

    def _of_known(self, value: Any) -> tuple[int, int]:
        self._check(value)
        if isinstance(value, str | bytes):
            return 1 + len(value) // _LETTERS, 0
        return self._known[id(value)] if _inner(value) else (1, 0)


def _inner(value: Any) -> Any:
    """The values in a container; nothing for other values."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def inside(
    values: list[Any], wanted: Callable[[Any], bool], depth: int = _DEEPEST
) -> Iterator[Any]:
    """The values that are wanted, in lists and dictionaries too."""
    for value in values:
        if wanted(value):
            yield value
        elif depth and isinstance(value, dict):
            yield from inside(list(value.values()), wanted, depth - 1)
        elif depth and isinstance(value, list | tuple):
            yield from inside(list(value), wanted, depth - 1)
