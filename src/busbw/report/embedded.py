"""Writes results as JSON into an HTML page, and reads them from it, to compute figures anew."""

import html
import json
import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import msgspec

from busbw.core import json_codec
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.ui.html.element import tag

KIND = "busbw-result"
NOTE = (
    "The results are in this page. busbw compare FILE FILE --table 1 --table 2 computes the"
    " comparison of the first two anew, and busbw show FILE --table 1 prints the first; FILE is"
    " this page."
)
_BLOCK = re.compile(rb'<pre class="' + KIND.encode() + rb'" hidden="hidden">(.*?)</pre>', re.DOTALL)


def embedded(named: Sequence[tuple[str, Result]]) -> list[Element]:
    """A hidden element for each result, as JSON in ASCII so that no program alters it."""
    return [tag("pre", _ascii(result), class_=KIND, hidden="hidden") for _, result in named]


def _ascii(result: Result) -> str:
    return json.dumps(msgspec.json.decode(json_codec.encode(result)), ensure_ascii=True)


def extract(page: bytes, table: int | None) -> bytes:
    """The JSON of the result with the number `table`, from 1 on.

    None is for a page with one result. UsageError if the page has no such result.
    """
    blocks = _BLOCK.findall(page)
    if not blocks:
        raise UsageError(
            "a page without results in it", "only pages of busbw report --sign have them"
        )
    if table is None and len(blocks) > 1:
        raise UsageError(f"this page has {len(blocks)} results", "choose one: --table 1")
    number = table or 1
    if number > len(blocks):
        raise UsageError(
            f"--table {number}: this page has {len(blocks)}",
            f"give a number from 1 to {len(blocks)}",
        )
    return html.unescape(blocks[number - 1].decode()).encode()
