"""Records of files given by their contents."""

import io

from busbw.core.pattern import Pattern
from busbw.pattern.registry import read
from busbw.pattern.source import opened


def record(*contents: bytes, names: tuple[str, ...] = (), **options: object) -> Pattern:
    """The record of files with these contents."""
    called = names or tuple(f"file_{number}" for number in range(len(contents)))
    named_contents = zip(called, contents, strict=True)
    return read(
        [
            opened(name, io.BytesIO(data), number, len(contents))
            for number, (name, data) in enumerate(named_contents)
        ],
        **options,
    )


def calls(pattern: Pattern) -> list[str]:
    """The functions of the calls in their order."""
    return [pattern.rows[call.row].function for call in pattern.calls]
