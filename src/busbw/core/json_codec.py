"""Results and events as JSON. Numbers that JSON lacks are the strings "nan", "inf" and "-inf"."""

import math
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
# A float of MessagePack: its mark, and the sign and exponent of infinities and nan.
_LARGEST_EXPONENT = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def encode(value: msgspec.Struct) -> bytes:
    """The structure as JSON on one line."""
    if _is_finite(value):
        return msgspec.json.encode(value)
    return msgspec.json.encode(_with_spelled_floats(msgspec.to_builtins(value)))


def indented(value: msgspec.Struct) -> str:
    """As `encode`, for people: indented, with a newline at the end."""
    return msgspec.json.format(encode(value), indent=2).decode() + "\n"


def decode(data: bytes | str, kind: type[T]) -> T:
    """The structure that `encode` wrote; msgspec.DecodeError if the JSON does not fit `kind`."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except UnicodeDecodeError as error:  # in a string; elsewhere it is a DecodeError
        raise msgspec.DecodeError(str(error)) from error


def _is_finite(value: msgspec.Struct) -> bool:
    """Whether JSON has all numbers of the structure; False also if that is not known.

    It is written after every row. MessagePack writes floats as they are in memory: those that are
    not finite have the largest exponent.
    """
    try:
        return _LARGEST_EXPONENT.search(msgspec.msgpack.encode(value)) is None
    except OverflowError:  # an integer of more than 64 bits
        return False


def _with_spelled_floats(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}"
    if isinstance(value, list | tuple):
        return [_with_spelled_floats(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_spelled_floats(item) for key, item in value.items()}
    return value
