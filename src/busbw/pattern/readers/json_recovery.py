"""What can still be read of a broken JSON file: its objects, one by one."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

# What decoding raises: msgspec.DecodeError and UnicodeDecodeError are ValueErrors; deep nesting is
# a RecursionError.
BROKEN = (ValueError, RecursionError)
# What looking into decoded values raises where they are of other types than expected.
UNEXPECTED = (*BROKEN, TypeError, KeyError, IndexError, AttributeError, OverflowError)
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_BETWEEN_DOCUMENTS = re.compile(r"[] \t\r\n,[]*")


def objects(data: bytes, key: str) -> Iterator[dict[str, Any]]:
    """The objects in the list under `key`, up to the first that is broken."""
    text = data.decode(errors="replace")
    at = text.find(f'"{key}"')
    at = text.find("[", at) + 1 if at >= 0 else 0
    decode = json.JSONDecoder(strict=False).raw_decode
    while 0 < at < len(text):
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        try:
            value, at = decode(text, at)
        except BROKEN:
            return
        if isinstance(value, dict):
            yield value


def documents(data: bytes, report: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The JSON objects that follow each other, on any lines or in one list.

    `report` is called with the place and the error where they can be read no further.
    """
    text = data.decode(errors="replace")
    decode = json.JSONDecoder(strict=False).raw_decode
    at = 0
    while at < len(text):
        at = _BETWEEN_DOCUMENTS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return
        try:
            value, at = decode(text, at)
        except BROKEN as error:
            report(f"character {at}: {error}")
            return
        if isinstance(value, dict):
            yield value
