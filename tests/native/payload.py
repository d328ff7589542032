"""Bytes that identify their position, generated and compared at memory speed.

A message is a piece of one random ring that begins where its seed says. The ring's length is prime,
so that a chunk which landed at the wrong offset, or in the wrong message, differs.
"""

import ctypes
import random

RING_BYTES = 1048583  # the first prime above 1 MiB
GUARD_BYTES = 4096
_GUARD = b"\xa5" * GUARD_BYTES
_RING = random.Random(1).randbytes(RING_BYTES)
_RING_AT = ctypes.cast(ctypes.c_char_p(_RING), ctypes.c_void_p).value or 0
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Buffer:
    """`size` bytes between two guard zones, valid as long as this object."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = bytearray(size + 2 * GUARD_BYTES)
        self._bytes[:GUARD_BYTES] = _GUARD
        self._bytes[GUARD_BYTES + size :] = _GUARD
        self.address = (
            ctypes.addressof((ctypes.c_char * len(self._bytes)).from_buffer(self._bytes))
            + GUARD_BYTES
        )

    def fill(self, seed: int) -> None:
        """Fill it with the message of a seed."""
        for at, start, count in _pieces(self.size, seed):
            ctypes.memmove(self.address + at, _RING_AT + start, count)

    def fault(self, size: int, seed: int) -> str:
        """What is wrong if its first `size` bytes should be the message of a seed; "" if
        nothing.
        """
        for at, start, count in _pieces(min(size, self.size), seed):
            if _memcmp(self.address + at, _RING_AT + start, count):
                content = ctypes.string_at(self.address + at, count)
                first = next(
                    i
                    for i, (a, b) in enumerate(
                        zip(content, _RING[start : start + count], strict=True)
                    )
                    if a != b
                )
                return f"byte {at + first} of {size} differs"
        return self.guard_fault()

    def guard_fault(self) -> str:
        """Describes a write outside the buffer; "" if there was none."""
        before, after = self._bytes[:GUARD_BYTES], self._bytes[GUARD_BYTES + self.size :]
        return (
            ""
            if before == _GUARD and after == _GUARD
            else f"written outside a buffer of {self.size} bytes"
        )


def _pieces(size: int, seed: int) -> list[tuple[int, int, int]]:
    """(offset in the message, offset in the ring, bytes) that make up a message."""
    pieces = []
    at, start = 0, seed * 7919 % RING_BYTES
    while at < size:
        count = min(size - at, RING_BYTES - start)
        pieces.append((at, start, count))
        at, start = at + count, 0
    return pieces
