"""Every number survives writing and reading, including nan and infinities, and finite ones are
plain JSON numbers.
"""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core import json_codec
from busbw.core.result import Cell, Mismatch, Result, ResultRow
from busbw.core.sweep import SweepSpec

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


def result_of(cell: Cell) -> Result:
    return Result(
        SweepSpec(collective="all_reduce"),
        rows=[ResultRow(64, 16, "float", "sum", -1, cell, None, 20)],
    )


@given(
    FLOATS,
    st.none() | FLOATS,
    st.none() | st.lists(FLOATS, max_size=3),
    st.none() | st.lists(st.lists(FLOATS, max_size=2), max_size=2),
)
def test_a_result_survives_encoding_and_decoding(
    time: float,
    cpu: float | None,
    samples: list[float] | None,
    process_samples: list[list[float]] | None,
) -> None:
    result = result_of(
        Cell(time, 1.0, -time, cpu_time_s=cpu, samples_s=samples, process_samples_s=process_samples)
    )
    # nan is not equal to itself
    assert repr(json_codec.decode(json_codec.encode(result), Result)) == repr(result)


def test_strings_like_nan_stay_strings() -> None:
    result = result_of(Cell(math.nan, 1.0, 1.0, 3, mismatches=[Mismatch(0, 7, "inf", "nan", 3)]))
    result.environment = {"NCCL_TESTS_MIN_BW": "nan"}
    assert repr(json_codec.decode(json_codec.encode(result), Result)) == repr(result)


def test_finite_values_are_plain_json_numbers() -> None:
    cell = json.loads(
        json_codec.encode(result_of(Cell(math.inf, math.nan, 2.5, samples_s=[1.0, -math.inf])))
    )["rows"][0]["out_of_place"]
    assert (
        cell["time_s"],
        cell["algbw"],
        cell["busbw"],
        cell["samples_s"],
        cell["cpu_time_s"],
    ) == ("inf", "nan", 2.5, [1.0, "-inf"], None)
    result = result_of(Cell(1.0, 2.0, 3.0))
    assert json_codec.encode(result) == msgspec.json.encode(result)


@pytest.mark.parametrize(
    "text", [b'{"schema": "busbw.result/1"', b'{"schema": 3}', b"[]", b'{"schema": "\x80"}']
)
def test_invalid_result_json_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        json_codec.decode(text, Result)
