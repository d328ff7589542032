"""Reads pickles of plain containers: nothing in them can name code, and none takes more time or
memory than its size allows.

A few bytes of a pickle can refer to the same list many times, in a list that is referred to many
times in turn: a program that follows every reference never ends. So values are counted as if each
reference were a copy. From a pickle that is cut off, the values that are complete are read.
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
    """The bytes are no pickle of plain containers; `values` are the values that were complete."""

    def __init__(self, reason: str, values: list[Any]) -> None:
        super().__init__(reason)
        self.values = values


class _SafeUnpickler(pickle._Unpickler):  # the one in Python keeps its stack, and so what was read
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
    load: Callable[[_SafeUnpickler], None], keys: Callable[[_SafeUnpickler], list[Any]]
) -> Callable[[_SafeUnpickler], None]:
    def checked(reader: _SafeUnpickler) -> None:
        _check_keys(keys(reader))
        load(reader)

    return checked


# Where the keys of a dictionary or the items of a set are on the stack when an opcode adds them.
_ADDED: dict[bytes, Callable[[_SafeUnpickler], list[Any]]] = {
    pickle.SETITEM: lambda reader: reader.stack[-2:-1],
    pickle.SETITEMS: lambda reader: reader.stack[::2],
    pickle.DICT: lambda reader: reader.stack[::2],
    pickle.ADDITEMS: lambda reader: reader.stack,
    pickle.FROZENSET: lambda reader: reader.stack,
}
for _opcode, _at in _ADDED.items():
    _SafeUnpickler.dispatch[_opcode[0]] = _with_plain_keys(_SafeUnpickler.dispatch[_opcode[0]], _at)


def _check_keys(values: list[Any]) -> None:
    """Refuse keys that are not plain: hashing a tuple, or equal hashes, may take forever."""
    for value in values:
        if not isinstance(value, _KEYS) or (
            isinstance(value, int) and value.bit_length() > _INTEGER_BITS
        ):
            raise pickle.UnpicklingError(f"a key that is a {type(value).__name__}")


def load(data: bytes) -> Any:
    """The value in a pickle; Unreadable if broken, or not of containers, text and numbers."""
    reader = _SafeUnpickler(io.BytesIO(data))
    limit = _VALUES + _MULTIPLE * len(data)
    try:
        value = reader.load()
        _Weight(limit).of(value)
    except Exception as error:  # bytes that are no pickle can raise anything
        values = list(getattr(reader, "stack", []))
        for part in getattr(reader, "metastack", []):
            values += part
        complete = list(_light(values, limit))
        raise Unreadable(f"{type(error).__name__}: {error}", complete) from error
    return value


def _light(values: list[Any], limit: int) -> Iterator[Any]:
    """The values that can be followed, until they hold more than `limit` values together."""
    weight = _Weight(limit)
    total = 0
    for value in values:
        try:
            total += weight.of(value)
        except pickle.UnpicklingError:
            continue
        if total > limit:
            return
        yield value


class _Weight:
    """Counts the values that a program meets when it follows every reference.

    UnpicklingError for more than `limit` values, for deep nesting, and for a container in itself.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # By id of a container: the number of its values, and how deep they are nested.
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, value: Any) -> int:
        """The number of values in this one, itself included."""
        stack = [value]
        entered: set[int] = set()
        while stack:
            top = stack[-1]
            if id(top) in self._known or not _inner(top):
                self._check(top)
                stack.pop()
            elif id(top) in entered:
                self._known[id(top)] = self._sum(top)
            else:
                entered.add(id(top))
                missing = [
                    inner for inner in _inner(top) if _inner(inner) and id(inner) not in self._known
                ]
                if any(id(inner) in entered for inner in missing):
                    raise pickle.UnpicklingError(
                        "a container that contains itself, or is nested without end"
                    )
                stack += missing
        return self._of_known(value)[0]

    def _check(self, value: Any) -> None:
        if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
            raise pickle.UnpicklingError(f"an integer of {value.bit_length()} bits")

    def _sum(self, container: Any) -> tuple[int, int]:
        """The number of values of a container, and its depth, from those of the values in it."""
        weights = [self._of_known(inner) for inner in _inner(container)]
        values = 1 + sum(values for values, _ in weights)
        depth = 1 + max(depth for _, depth in weights)
        if values > self._limit:
            raise pickle.UnpicklingError("references that stand for too many values")
        if depth > _NESTED:
            raise pickle.UnpicklingError("too deeply nested")
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
    values: list[Any], matches: Callable[[Any], bool], depth: int = _DEEPEST
) -> Iterator[Any]:
    """The values for which `matches` is true, also those in lists and dictionaries."""
    for value in values:
        if matches(value):
            yield value
        elif depth and isinstance(value, dict):
            yield from inside(list(value.values()), matches, depth - 1)
        elif depth and isinstance(value, list | tuple):
            yield from inside(list(value), matches, depth - 1)
