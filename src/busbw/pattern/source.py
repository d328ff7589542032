"""One file of a job: all its bytes, or line by line; it may be compressed with gzip or cut off."""

import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from busbw.core.errors import UsageError
from busbw.core.gzip_stream import MAGIC, GzipStream
from busbw.pattern.collector import Collector

HEAD_BYTES = 1 << 16  # bytes that formats are recognizes from
LINE_LIMIT = 1 << 24  # what is longer is no line of any format
WHOLE_LIMIT = 2 << 30  # formats that cannot be read in pieces
_PIECE = 1 << 16
_RANK = re.compile(r"(?:rank[_-]?|[._-])(\d+)(?:\.[A-Za-z]\w*)*$")


@dataclass(slots=True)
class PatternSource:
    """A file to read. `number` is its position among the `files` of the job, `graphs` the content
    of the file beside it with the CUDA graphs of its process.
    """

    name: str
    stream: "io.BufferedReader[io.RawIOBase]"
    number: int = 0
    files: int = 1
    graphs: bytes = b""

    @property
    def head(self) -> bytes:
        """The first bytes, which are not consumed."""
        try:
            return self.stream.peek(HEAD_BYTES)[:HEAD_BYTES]
        except (EOFError, OSError, zlib.error):
            return b""

    @property
    def rank(self) -> int | None:
        """The number at the end of the name: `trace.3.et`, `rank_3.json`, `nccl_trace_rank_3`."""
        match = _RANK.search(self.name.rsplit("/", 1)[-1].removesuffix(".gz"))
        return int(match[1]) if match and len(match[1]) < 7 else None

    def close(self) -> None:
        self.stream.close()

    def lines(self, collector: Collector) -> Iterator[tuple[int, bytes]]:
        """Numbered lines, up to where the file can be read."""
        number = 0
        try:
            while line := self.stream.readline(LINE_LIMIT):
                number += 1
                yield number, line
        except (EOFError, OSError, zlib.error) as error:
            collector.add_problem(f"{self.name}: line {number + 1}: {error}")

    def pieces(self, collector: Collector, size: int = _PIECE) -> Iterator[bytes]:
        """The content in pieces of up to `size` bytes, as far as it can be read."""
        read = 0
        try:
            while piece := self.stream.read1(size):
                yield piece
                read += len(piece)
        except (EOFError, OSError, zlib.error) as error:
            collector.add_problem(f"{self.name}: byte {read}: {error}")

    def read_all(self, collector: Collector) -> bytes:
        """The content, as far as it can be read; UsageError above WHOLE_LIMIT."""
        content = io.BytesIO()
        for piece in self.pieces(collector):
            if content.write(piece) and content.tell() > WHOLE_LIMIT:
                limit = f"larger than {WHOLE_LIMIT >> 30} GiB"
                raise UsageError(
                    f"{self.name}: {limit}, and this format cannot be read in pieces", "trim it"
                )
        return content.getvalue()


def opened(
    name: str, raw: BinaryIO, number: int = 0, files: int = 1, graphs: bytes = b""
) -> PatternSource:
    """A source of the bytes in `raw`, decompressed if they are those of gzip."""
    stream = io.BufferedReader(cast(io.RawIOBase, raw), HEAD_BYTES)
    try:
        packed = stream.peek(2)[:2] == MAGIC
    except OSError as error:
        message = f"{name}: {error.strerror or error}"
        raise UsageError(message, "name a file that can be read") from error
    if packed:
        stream = io.BufferedReader(GzipStream(stream), HEAD_BYTES)
    return PatternSource(name, stream, number, files, graphs)
