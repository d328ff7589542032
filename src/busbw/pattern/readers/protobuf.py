"""The wire format of protocol buffers, as far as streams of messages need it.

Source: protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = int | bytes
_SIZES = {FIXED64: 8, FIXED32: 4}


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends; ValueError if it has no end."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("a number without its end")


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field of a message; ValueError if it is broken."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        size = _SIZES.get(kind)
        if kind == BYTES:
            size, at = varint(data, at)
        if size is None or number == 0 or at + size > len(data):
            raise ValueError(f"field {number} of wire type {kind} is broken")
        yield number, kind, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """An int32 or int64 from its varint."""
    return value - (1 << 64) if value >> 63 else value


def packed(data: bytes) -> list[int]:
    """The varints of a packed list."""
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(signed(value))
    return found


def number(kind: int, value: Value) -> int | None:
    """The integer in a scalar field of integer type."""
    if isinstance(value, int):
        return signed(value)
    return (
        int(struct.unpack("<q" if kind == FIXED64 else "<i", value)[0]) if kind in _SIZES else None
    )
