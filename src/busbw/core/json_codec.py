"""Results and events as JSON. Numbers that JSON lacks are the strings "nan", "inf" and "-inf"."""

import math
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(value: msgspec.Struct) -> bytes:
    """The structure as JSON on one line."""
    return msgspec.json.encode(value if _finite(value) else _spelled(msgspec.to_builtins(value)))


def decode(data: bytes | str, kind: type[T]) -> T:
    """The `kind` in what `encode` wrote; msgspec.DecodeError if the JSON does not fit."""
    return msgspec.json.decode(data, type=kind, strict=False)


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, msgspec.Struct):
        return all(_finite(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple):
        if value and type(value[0]) is float:  # samples: long lists of one type
            return all(map(math.isfinite, value))
        return all(map(_finite, value))
    return not isinstance(value, dict) or all(map(_finite, value.values()))


def _spelled(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}"
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    return (
        {key: _spelled(item) for key, item in value.items()} if isinstance(value, dict) else value
    )
