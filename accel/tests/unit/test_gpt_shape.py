"""Shapes of transformers with a given number of parameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw_accel.memory_plan.gpt_shape import (
    SMALL_PARAMETERS,
    SMALL_TOLERANCE,
    TOLERANCE,
    GptShape,
    parse_count,
    shape_of,
)


@given(st.integers(2_000_000, 10**12), st.sampled_from([128, 1024, 8192]))
def test_a_shape_has_the_number_of_parameters(parameters, sequence):
    try:
        shape = shape_of(parameters, sequence)
    except UsageError:
        assert parameters < SMALL_PARAMETERS
        return
    assert abs(shape.parameters(sequence) / parameters - 1) <= (
        TOLERANCE if parameters >= SMALL_PARAMETERS else SMALL_TOLERANCE
    )
    assert shape.width % 128 == 0
    assert shape.width / shape.heads in (64, 128)


def test_shapes_of_gpt_3_are_found():
    assert shape_of(6_700_000_000, 2048) == GptShape(32, 4096, 32, 50_304)
    assert shape_of(175_000_000_000, 2048) == GptShape(96, 12_288, 96, 50_304)


def test_a_size_without_a_shape_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="no gpt has this number") as caught:
        shape_of(300_000, 1024)
    assert caught.value.hint == "the nearest has 0.9 million"


@pytest.mark.parametrize(
    ("text", "count"),
    [("124M", 124_000_000), ("1.5B", 1_500_000_000), ("8e9", 8_000_000_000), ("13b", 13 * 10**9)],
)
def test_counts_are_read(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "8X", "-1", "0", "nan", "1e30", "8 GB"])
def test_other_texts_are_not_counts(text):
    with pytest.raises(UsageError, match="not a number of parameters"):
        parse_count(text)
