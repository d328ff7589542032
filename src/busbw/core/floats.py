"""Exact encoding, decoding and rounding of the float types, in integers and fractions.

All are IEEE 754 binary formats except f8e4m3, which has no infinity: an all-ones exponent holds
numbers, and only all ones is NaN.
"""

from fractions import Fraction

from busbw.core.dtypes import DType


def _bias(dtype: DType) -> int:
    return (1 << (dtype.exponent_bits - 1)) - 1


def encode(units: int, exponent: int, dtype: DType) -> int:
    """Bits of units * 2^exponent, +0 for zero; ValueError if the value is not exactly
    representable.
    """
    if units == 0:
        return 0
    magnitude = abs(units)
    trailing = (magnitude & -magnitude).bit_length() - 1
    magnitude, exponent = magnitude >> trailing, exponent + trailing
    p, bias = dtype.significand, _bias(dtype)
    top = exponent + magnitude.bit_length() - 1  # exponent of the leading bit
    lowest = max(top, 1 - bias) - (p - 1)  # exponent of the last bit of the field
    if exponent < lowest:
        raise ValueError(f"{units} * 2^{exponent} is not a {dtype.name}")
    field = magnitude << (exponent - lowest)
    # the hidden bit adds 1 to the exponent field
    bits = field + (max(top + bias, 1) - 1 << (p - 1))
    if bits > _largest(dtype):
        raise ValueError(f"{units} * 2^{exponent} is too large for {dtype.name}")
    return bits | (units < 0) << (dtype.bits - 1)


def _largest(dtype: DType) -> int:
    """Bits of the largest finite number."""
    all_ones = (1 << (dtype.bits - 1)) - 1
    return all_ones - 1 if dtype.name == "f8e4m3" else all_ones - (1 << (dtype.significand - 1))


def decode(bits: int, dtype: DType) -> Fraction | str:
    """The value of the bits, or 'nan', 'inf', '-inf'."""
    p, bias = dtype.significand, _bias(dtype)
    negative, rest = bits >> (dtype.bits - 1), bits & ((1 << (dtype.bits - 1)) - 1)
    if rest > _largest(dtype):
        infinite = dtype.name != "f8e4m3" and rest & ((1 << (p - 1)) - 1) == 0
        return ("-inf" if negative else "inf") if infinite else "nan"
    field, mantissa = rest >> (p - 1), rest & ((1 << (p - 1)) - 1)
    units = mantissa | (1 << (p - 1) if field else 0)
    value = Fraction(units) * Fraction(2) ** (max(field, 1) - bias - (p - 1))
    return -value if negative else value


def round_to_bits(value: Fraction, dtype: DType) -> int:
    """Bits of the nearest number of the type, ties to even; the value must be within its finite
    range.
    """
    if value == 0:
        return 0
    magnitude = abs(value)
    top = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** top > magnitude:
        top -= 1
    lowest = max(top, 1 - _bias(dtype)) - (dtype.significand - 1)
    units = round(magnitude / Fraction(2) ** lowest)  # round() of a Fraction is half to even
    return encode(-units if value < 0 else units, lowest, dtype)
