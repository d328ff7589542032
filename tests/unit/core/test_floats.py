"""The bit patterns of the float types are those of numpy and ml_dtypes."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.dtypes import DTYPES, DType, decode, dtype, encode, round_to_bits

SCALAR = {
    "half": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}
SMALL = [row for row in DTYPES if row.name in SCALAR]
FLOATS = [row for row in DTYPES if row.is_float]


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_all_8_and_16_bit_patterns_decode_as_in_numpy(row: DType) -> None:
    patterns = np.arange(1 << row.bits, dtype=f"u{row.itemsize}")
    with np.errstate(invalid="ignore"):  # converting a signalling NaN warns
        values = patterns.view(SCALAR[row.name]).astype(np.float64).tolist()
    for bits, value in enumerate(values):
        decoded = decode(bits, row)
        if isinstance(decoded, Fraction):
            assert decoded == Fraction(value), hex(bits)
        else:
            assert decoded == str(value), hex(bits)


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
@given(data=st.data())
def test_rounding_matches_numpy(row: DType, data: st.DataObject) -> None:
    value = data.draw(st.floats(-400, 400, width=32))
    rounded = np.float32(value).astype(SCALAR[row.name])
    rounded_bits = round_to_bits(Fraction(value), row)
    assert decode(rounded_bits, row) == Fraction(float(rounded))


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_wide_types_round_trip_through_numpys_bits(double: float, single: float) -> None:
    for value, row, kind in (
        (double, dtype("double"), np.float64),
        (single, dtype("float"), np.float32),
    ):
        bits = int(np.asarray(value, kind).view(f"u{row.itemsize}"))
        assert decode(bits, row) == Fraction(value)
        assert round_to_bits(Fraction(value), row) == (bits if value else 0)


@given(st.floats(-1e38, 1e38))
def test_a_double_rounds_to_float_as_in_numpy(value: float) -> None:
    assert decode(round_to_bits(Fraction(value), dtype("float")), dtype("float")) == Fraction(
        float(np.float32(value))
    )


@pytest.mark.parametrize("row", FLOATS, ids=lambda row: row.name)
def test_a_value_that_does_not_fit_is_refused(row: DType) -> None:
    low, high = row.unit_exponents
    largest = (1 << row.significand) - 1
    assert decode(encode(largest, high, row), row) == Fraction(largest) * Fraction(2) ** high
    assert decode(encode(1, low, row), row) == Fraction(2) ** low
    with pytest.raises(ValueError, match="is not a"):
        encode(largest + 2, low, row)  # one bit more than the significand
    with pytest.raises(ValueError, match="is too large"):
        encode(1, high + row.significand + 1, row)
    with pytest.raises(ValueError, match="is not a"):
        encode(1, low - row.significand, row)


@pytest.mark.parametrize("row", FLOATS, ids=lambda row: row.name)
def test_unit_exponents_use_the_full_range_of_the_type(row: DType) -> None:
    low, high = row.unit_exponents
    assert low == 2 - (1 << (row.exponent_bits - 1)), "the smallest normal number"
    with pytest.raises(ValueError, match="too large"):
        encode((1 << row.significand) - 1, high + 1, row)


def test_nan_and_infinity_have_names() -> None:
    half, e4m3, e5m2 = dtype("half"), dtype("f8e4m3"), dtype("f8e5m2")
    assert [decode(bits, half) for bits in (0x7C00, 0xFC00, 0x7C01)] == ["inf", "-inf", "nan"]
    assert [decode(bits, e5m2) for bits in (0x7C, 0xFC, 0x7F)] == ["inf", "-inf", "nan"]
    assert [decode(bits, e4m3) for bits in (0x7F, 0xFF)] == ["nan", "nan"]
    assert decode(0x7E, e4m3) == 448
