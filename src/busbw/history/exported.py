"""Runs as text outside the history: one result on a line, which `busbw history add` reads back.

A result of a log may not say when it began. The history then keeps when it was added; the line has
that as `added`, which readers of results ignore.
"""

from datetime import datetime

import msgspec

_KEY = "added"


class _Head(msgspec.Struct):
    start: str = ""
    added: str = ""


def line(text: str, start: str) -> str:
    """A stored result and its newline.

    `start` is the history's own record of when the run began.
    """
    head = msgspec.json.decode(text, type=_Head)
    own = _date(head.start) is not None
    return (text if own else f'{text[:-1]},"{_KEY}":"{start}"}}') + "\n"


def indented(line: str) -> bytes:
    """A line as a file for people."""
    return msgspec.json.format(line.encode(), indent=2) + b"\n"


def split(data: bytes, file: str) -> list[tuple[str, bytes]]:
    """The results in a file, each with its name for messages: its lines where the first is a
    whole result, otherwise all of it.
    """
    lines = [
        (f"{file} line {number}", line)
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.strip()
    ]
    return (
        lines
        if len(lines) > 1 and lines[0][1].startswith(b'{"schema":"busbw.result/')
        else [(file, data)]
    )


def when(data: bytes) -> datetime | None:
    """When an exported result was added to the history it comes from; None where the line does
    not say.
    """
    try:
        return _date(msgspec.json.decode(data, type=_Head).added)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
