"""Decompresses gzip up to a bound, as a stream or in memory: a small file may be made to become a
very large one.
"""

import errno
import io
import zlib
from typing import Any

MAGIC = b"\x1f\x8b"
FREE_BYTES = 64 << 20  # that a compressed file may always become
# The largest ratio of decompressed to compressed bytes beyond FREE_BYTES: logs and traces become
# 5 to 50 times as large, a file made to fill the memory 1,000 times.
MAX_RATIO = 200
_PIECE = 1 << 16
_GZIP = 31  # zlib: the largest window, with the header and trailer of gzip


class GzipStream(io.RawIOBase):
    """The decompressed bytes of a stream of one or several gzip members.

    Where the stream is cut off, all bytes before the cut are returned first.
    """

    def __init__(self, packed: io.BufferedIOBase) -> None:
        super().__init__()
        self._packed = packed
        self._member = zlib.decompressobj(_GZIP)
        self._pending = b""  # packed bytes that were read, but not decompressed
        self._packed_bytes = self._unpacked_bytes = 0

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer and return the number of bytes, 0 at the end.

        EOFError or zlib.error where the stream is cut off or broken.
        """
        while True:
            if self._member.eof:
                self._pending = self._member.unused_data or self._read_packed()
                if not self._pending.strip(b"\0"):
                    return 0
                self._member = zlib.decompressobj(_GZIP)
            packed = self._pending or self._read_packed()
            data = self._member.decompress(packed, len(buffer))
            self._pending = self._member.unconsumed_tail
            if data:
                self._check_ratio(len(data))
                buffer[: len(data)] = data
                return len(data)
            if not packed and not self._member.eof:
                raise EOFError("the compressed file is cut off")

    def _check_ratio(self, size: int) -> None:
        """Count `size` more bytes; zlib.error for a file that was made to fill the memory."""
        self._unpacked_bytes += size
        if self._unpacked_bytes > FREE_BYTES + MAX_RATIO * self._packed_bytes:
            raise zlib.error(
                f"{self._packed_bytes} compressed bytes become more than {MAX_RATIO} times as many"
            )

    def _read_packed(self) -> bytes:
        piece = self._packed.read(_PIECE)
        self._packed_bytes += len(piece)
        return piece


def unpacked(data: bytes, limit: int) -> bytes:
    """The bytes that were compressed, or `data` if it is not of gzip.

    OSError for a damaged or cut file, for more than `limit` bytes, and for a file that was made to
    fill the memory.
    """
    if not data.startswith(MAGIC):
        return data
    stream = GzipStream(io.BytesIO(data))
    pieces, size = [], 0
    try:
        while piece := stream.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise OSError(errno.EFBIG, f"decompressed, it is larger than {limit >> 20} MiB")
    except (EOFError, zlib.error) as error:
        raise OSError(errno.EINVAL, f"compressed with gzip, but {error}") from error
    return b"".join(pieces)
