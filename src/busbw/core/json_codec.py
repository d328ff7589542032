"""Results and events as JSON. Numbers that JSON lacks are the strings "nan", "inf" and "-inf"."""

import math
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(value: msgspec.Struct) -> bytes:
    """The structure as JSON on one line."""
    if _is_finite(value):
        return msgspec.json.encode(value)
    return msgspec.json.encode(_with_spelled_floats(msgspec.to_builtins(value)))


def decode(data: bytes | str, kind: type[T]) -> T:
    """The structure of type `kind` that `encode` wrote; msgspec.DecodeError if the JSON does not
    fit.
    """
    return msgspec.json.decode(data, type=kind, strict=False)


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, msgspec.Struct):
        return all(_is_finite(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple):
        if value and type(value[0]) is float:  # samples: long lists of one type
            return all(map(math.isfinite, value))
        return all(map(_is_finite, value))
    return not isinstance(value, dict) or all(map(_is_finite, value.values()))


def _with_spelled_floats(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}"
    if isinstance(value, list | tuple):
        return [_with_spelled_floats(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_spelled_floats(item) for key, item in value.items()}
    return value
