"""Results with junk in one place, as an edited file may have."""

import contextlib
import json
from collections.abc import Iterator
from functools import reduce
from operator import getitem

import msgspec

from busbw.core.errors import UsageError
from busbw.core.result import Outcome
from busbw.report import results
from busbw.report.read import read

JUNK = [0, -1, None, "", "x", "nan", "inf", [], {}, 1e308, 2**62, True, "all", "\0"]


def places(part: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all values; of a list, in its first and last item, which have the fields of all."""
    if isinstance(part, dict):
        items = list(part.items())
    elif isinstance(part, list):
        items = [(index, part[index]) for index in sorted({0, len(part) - 1}) if part]
    else:
        return
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def damaged(result: Outcome, within: str = "") -> Iterator[Outcome]:
    """What is read from a result's file with junk in one place, for every place, or those within
    one field, and junk that is not refused.
    """
    document = json.loads(results.render(result))
    for *outer, key in list(places(document)):
        if within not in ("", *outer):
            continue
        inner = reduce(getitem, outer, document)
        right = inner[key]
        for inner[key] in JUNK:
            with contextlib.suppress(UsageError):
                yield read(msgspec.json.encode(document), "r.json")
        inner[key] = right
