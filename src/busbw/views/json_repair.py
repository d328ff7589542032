"""Closes a JSON document that was cut off, so that what had been written whole can still be read."""

import json

from busbw.core.errors import UsageError

CLOSING = {"{": "}", "[": "]"}


def loads(text: str) -> tuple[object, bool]:
    """The value, and whether the document was whole; of a cut one, all values before the last comma or bracket that was written.

    UsageError with the place when it is no JSON even so.
    """
    try:
        return json.loads(text), True
    except json.JSONDecodeError as error:
        broken = error
    except (RecursionError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise UsageError(f"JSON: {error}", "give a file that a benchmark wrote") from error
    try:
        return json.loads(closed(text)), False
    except ValueError:
        seen = text[broken.pos : broken.pos + 20]
        raise UsageError(
            f"JSON: {broken.msg} at line {broken.lineno}, column {broken.colno}, before {seen!r}",
            "give the file as its program wrote it; only a missing end can be mended",
        ) from broken


def closed(text: str) -> str:
    """`text` up to its last whole value, with the brackets closed that are still open there."""
    opened: list[str] = []
    end, brackets = 0, ""
    in_string = escaped = False
    for index, char in enumerate(text):
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in CLOSING:
            opened.append(CLOSING[char])
        elif char in "}]" and opened:
            opened.pop()
            end, brackets = index + 1, "".join(reversed(opened))
        elif char == ",":
            end, brackets = index, "".join(reversed(opened))
    return text[:end] + brackets
