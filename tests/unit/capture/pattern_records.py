"""Records of files given by their contents."""

import io

from busbw.capture.registry import read
from busbw.capture.source import opened
from busbw.core.pattern import Pattern


def record(*contents: bytes, names: tuple[str, ...] = (), **options: object) -> Pattern:
    """The record of files with these contents."""
    called = names or tuple(f"file_{number}" for number in range(len(contents)))
    given = zip(called, contents, strict=True)
    return read([opened(name, io.BytesIO(data), number, len(contents)) for number, (name, data) in enumerate(given)], **options)


def calls(pattern: Pattern) -> list[str]:
    """The functions of the calls in their order."""
    return [pattern.rows[call.row].function for call in pattern.calls]
