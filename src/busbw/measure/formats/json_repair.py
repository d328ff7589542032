"""Closes a JSON document that was cut off, so that its complete values can be read."""

import json
import re

from busbw.core.errors import UsageError

CLOSING = {"{": "}", "[": "]"}
# strings, a cut one too, and what separates values
TOKEN = re.compile(r'"(?:\\.|[^"\\])*(?:"|$)|[][{},]', re.DOTALL)


def loads(text: str) -> tuple[object, bool]:
    """The value, and whether the document was whole.

    Of a cut one, all values before the last comma or bracket.

    UsageError with the position when it is not JSON even so.
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
    for token in TOKEN.finditer(text):
        if token[0] in CLOSING:
            opened.append(CLOSING[token[0]])
        elif token[0] in "}],":
            if token[0] != "," and opened:
                opened.pop()
            end, brackets = (
                token.start() if token[0] == "," else token.end(),
                "".join(reversed(opened)),
            )
    return text[:end] + brackets
