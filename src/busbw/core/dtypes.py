"""The element types that a collective can move, in the order of NCCL's ncclDataType_t.

`encode`, `decode` and `round_to_bits` are exact, in integers and fractions.

All float types are IEEE 754 binary formats except f8e4m3, which has no infinity: an exponent of all
ones holds numbers, and only all ones is NaN.
"""

from dataclasses import dataclass
from fractions import Fraction

from busbw.core.errors import unknown


@dataclass(frozen=True, slots=True)
class DType:
    """One element type."""

    name: str  # nccl-tests' name, as printed
    nccl: int  # ncclDataType_t
    itemsize: int
    kind: str  # "int", "uint" or "float"
    torch: str  # PyTorch's name, as the CSV of the PyTorch benchmark prints it
    significand: int = 0  # bits of a float's significand, with the hidden one
    exponent_bits: int = 0
    # the smallest and largest e for which every integer up to 2^significand - 1, times 2^e, is a
    # normal finite number of the type (engines/host_probe.py)
    unit_exponents: tuple[int, int] = (0, 0)
    aliases: tuple[str, ...] = ()
    min_nccl: int = 0
    min_sm: int = 0

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def bits(self) -> int:
        return 8 * self.itemsize


DTYPES: tuple[DType, ...] = (
    DType("int8", 0, 1, "int", "int8", aliases=("char",)),
    DType("uint8", 1, 1, "uint", "uint8", aliases=("byte",)),
    DType("int32", 2, 4, "int", "int32", aliases=("int",)),
    DType("uint32", 3, 4, "uint", "uint32"),
    DType("int64", 4, 8, "int", "int64", aliases=("long",)),
    DType("uint64", 5, 8, "uint", "uint64"),
    DType("half", 6, 2, "float", "float16", 11, 5, (-14, 5), aliases=("float16", "fp16", "f16")),
    DType(
        "float", 7, 4, "float", "float32", 24, 8, (-126, 104), aliases=("float32", "fp32", "f32")
    ),
    DType(
        "double", 8, 8, "float", "float64", 53, 11, (-1022, 971), aliases=("float64", "fp64", "f64")
    ),
    DType("bfloat16", 9, 2, "float", "bfloat16", 8, 8, (-126, 120), aliases=("bf16",)),
    # 1.875 * 2^8 is NaN in e4m3, so the largest unit exponent is one lower than its exponent field
    # alone would allow.
    DType(
        "f8e4m3",
        10,
        1,
        "float",
        "float8_e4m3fn",
        4,
        4,
        (-6, 4),
        ("float8_e4m3fn", "float8_e4m3", "fp8_e4m3", "e4m3"),
        22400,
        90,
    ),
    DType(
        "f8e5m2",
        11,
        1,
        "float",
        "float8_e5m2",
        3,
        5,
        (-14, 13),
        ("float8_e5m2", "fp8_e5m2", "e5m2"),
        22400,
        90,
    ),
)

BY_NAME: dict[str, DType] = {name: row for row in DTYPES for name in (row.name, *row.aliases)}


def dtype(name: str, also: str = "") -> DType:
    """The row for nccl-tests' or PyTorch's name, or a short form; UsageError for another name,
    whose hint ends with `also`.
    """
    row = BY_NAME.get(name.lower())
    if row is None:
        names = {spelling: row.name for spelling, row in BY_NAME.items()}
        raise unknown("data type", name, names, "--datatype: ", also)
    return row


def _bias(dtype: DType) -> int:
    return (1 << (dtype.exponent_bits - 1)) - 1


def encode(units: int, exponent: int, dtype: DType) -> int:
    """Bits of units * 2^exponent, +0 for zero; ValueError if it is not exactly representable."""
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
    negative, magnitude = bits >> (dtype.bits - 1), bits & ((1 << (dtype.bits - 1)) - 1)
    field, mantissa = magnitude >> (p - 1), magnitude & ((1 << (p - 1)) - 1)
    if magnitude > _largest(dtype):
        if dtype.name == "f8e4m3" or mantissa:
            return "nan"
        return "-inf" if negative else "inf"
    units = mantissa | (1 << (p - 1) if field else 0)
    value = Fraction(units) * Fraction(2) ** (max(field, 1) - bias - (p - 1))
    return -value if negative else value


def round_to_bits(value: Fraction, dtype: DType) -> int:
    """Bits of the nearest number of the type, ties to even; `value` is in its finite range."""
    if value == 0:
        return 0
    magnitude = abs(value)
    top = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** top > magnitude:
        top -= 1
    lowest = max(top, 1 - _bias(dtype)) - (dtype.significand - 1)
    units = round(magnitude / Fraction(2) ** lowest)  # round() of a Fraction is half to even
    return encode(-units if value < 0 else units, lowest, dtype)
