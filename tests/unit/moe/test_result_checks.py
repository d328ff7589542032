"""Damaged files of `busbw moe` are refused."""

import json

import moe_results
import msgspec
import pytest

from busbw.core.errors import UsageError
from busbw.report import results
from busbw.report.read import read


def test_row_without_an_exchange_is_refused() -> None:
    result = moe_results.result()
    del result.rows[0].phases["pack"]
    assert read(results.render(result).encode(), "r.json")
    del result.rows[0].phases["exchange"]
    with pytest.raises(UsageError, match="row 1: 'dispatch' with the phases unpack"):
        read(results.render(result).encode(), "r.json")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("whole", "time_s"), 0, "row 1: a time of 0 seconds"),
        (("phases", "pack", "time_s"), "nan", "row 1: a time of nan seconds"),
        (("direction",), "sideways", "row 1: 'sideways' with the phases pack, exchange, unpack"),
        (("wire_bytes",), -1, "row 1: -1 bytes"),
        (("imbalance",), "inf", "row 1: an imbalance of inf"),
        (("tokens",), -1, "row 1: -1 tokens"),
    ],
)
def test_figures_that_no_run_gives_are_named(path, value, message: str) -> None:
    document = json.loads(results.render(moe_results.result()))
    place = document["rows"][0]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(UsageError, match=message):
        read(msgspec.json.encode(document), "r.json")
