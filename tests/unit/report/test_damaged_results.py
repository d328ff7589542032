"""Damaged files of `busbw backends`, `overlap` and `moe` are refused by name, or can be shown."""

import json
from typing import Any

import msgspec
import pytest
from damaged_results import damaged
from serving_results import backends, moe, overlap

import busbw
from busbw.backends.types import MeasuredRail
from busbw.core.errors import UsageError
from busbw.core.result import Outcome
from busbw.report import results
from busbw.report.read import read

MADE = {"backends": backends(), "overlap": overlap(), "moe": moe()}


@pytest.mark.parametrize("name", MADE)
def test_what_is_read_of_a_damaged_file_can_be_shown_and_compared(name: str) -> None:
    shown = 0
    for result in damaged(MADE[name]):
        kind = results.kind_of(result)
        assert kind.table(result, 80, False)
        assert list(kind.parts(result))
        assert isinstance(result.wrong(), bool)
        try:
            busbw.compare(MADE[name], result)
        except UsageError as error:
            assert "before measures" in error.message
        shown += 1
    assert shown > 20


CELL = ("rows", 0, "times", 0, "cell")
ALONE = ("rows", 0, "collective", "alone_s")
WHOLE = ("rows", 0, "whole")
OF_RAIL = backends(rails=[MeasuredRail("eth0", 1e9)])


@pytest.mark.parametrize(
    ("made", "path", "value", "message"),
    [
        (backends(), (*CELL, "time_s"), -1, "row 1, of 1024 bytes by nccl: a time of -1 seconds"),
        (backends(), (*CELL, "time_s"), "nan", "by nccl: a time of nan seconds"),
        (backends(), (*CELL, "low_s"), "inf", "by nccl: a time of inf seconds"),
        (backends(), (*CELL, "samples_s", 3), -2, "by nccl: a time of -2 seconds"),
        (backends(), (*CELL, "visits", 0), 2, "by nccl: visits of 13 samples, but 12"),
        (backends(), (*CELL, "busbw"), -1, "by nccl: a rate of -1 bytes per second"),
        (backends(), (*CELL, "visits", 0), 0, "by nccl: a visit of 0 samples"),
        (backends(), ("rows", 0, "times", 0, "mode"), "fast", "by nccl: the mode 'fast'"),
        (backends(), ("rows", 0, "times", 0, "operations"), -1, "by nccl: -1 operations"),
        (backends(), ("rows", 0, "times", 0, "operations"), 0, "by nccl: 0 operations"),
        (backends(), ("rows", 0, "size_bytes"), 0, "row 1: 0 bytes"),
        (OF_RAIL, ("rails", 0, "rate"), -1, "rail eth0: a rate of -1 bytes per second"),
        (OF_RAIL, ("rails", 0, "rate"), "inf", "rail eth0: a rate of inf bytes per second"),
        (backends(), ("spec", "collective"), "all", "spec.collective is 'all'"),
        (overlap(), (*ALONE, 0), -1, "row 1, the collective: a time of -1 seconds"),
        (overlap(), (*ALONE, 0), "nan", "row 1, the collective: a time of nan seconds"),
        (overlap(), ALONE, [], "row 1, the collective: no times alone"),
        (overlap(), ("rows", 0, "load", "operations"), 0, "row 1, the load: 0 operations"),
        (moe(), (*WHOLE, "time_s"), "nan", "row 1: a time of nan seconds"),
        (moe(), (*WHOLE, "samples_s", 0), -1, "row 1: a time of -1 seconds"),
        (moe(), ("rows", 0, "phases", "pack", "time_s"), "nan", "row 1: a time of nan seconds"),
        (moe(), ("rows", 0, "direction"), "sideways", "row 1: 'sideways' with the phases pack, "),
        (moe(), ("rows", 0, "wire_bytes"), -1, "row 1: -1 bytes"),
        (moe(), ("rows", 0, "imbalance"), "inf", "row 1: an imbalance of inf"),
        (moe(), ("rows", 0, "tokens"), -1, "row 1: -1 tokens"),
        (moe(), ("moe", "datatype"), "bits", "moe.datatype is 'bits'"),
    ],
)
def test_figures_that_no_run_gives_are_named(
    made: Outcome, path: tuple[str | int, ...], value: object, message: str
) -> None:
    document = json.loads(results.render(made))
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(UsageError) as refused:
        read(msgspec.json.encode(document), "r.json")
    assert refused.value.message.startswith("r.json: ")
    assert message in refused.value.message


def test_phases_of_moe_are_those_that_its_backend_separates_and_the_exchange() -> None:
    result = moe()
    del result.rows[0].phases["pack"]
    assert read(results.render(result).encode(), "r.json")
    del result.rows[0].phases["exchange"]
    with pytest.raises(UsageError, match="row 1: 'dispatch' with the phases unpack"):
        read(results.render(result).encode(), "r.json")
