"""Exported runs: a result as JSON on one line, which `busbw history add` reads back.

A result of a log may not say when it began. The history then keeps the time when it was added. The
exported line has that time as `added`, which readers of results ignore.
"""

from datetime import datetime

import msgspec

_KEY = "added"


class _RunHead(msgspec.Struct):
    start: str = ""
    added: str = ""


def line(text: str, start: str) -> str:
    """A stored result as a line with its newline.

    `text` is the result as JSON, `start` the history's record of when the run began.
    """
    head = msgspec.json.decode(text, type=_RunHead)
    if _date(head.start) is None:
        text = f'{text[:-1]},"{_KEY}":"{start}"}}'
    return text + "\n"


def indented(line: str) -> bytes:
    """A line as indented JSON."""
    return msgspec.json.format(line.encode(), indent=2) + b"\n"


def split(data: bytes, file: str) -> list[tuple[str, bytes]]:
    """The results in a file, each with its name for messages.

    The file is split into lines if the first line is a whole result.
    """
    lines = [
        (f"{file} line {number}", line)
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.strip()
    ]
    if len(lines) > 1 and lines[0][1].startswith(b'{"schema":"busbw.'):
        return lines
    return [(file, data)]


def when(data: bytes) -> datetime | None:
    """When an exported result was added to its history; None if the line does not say."""
    try:
        return _date(msgspec.json.decode(data, type=_RunHead).added)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
