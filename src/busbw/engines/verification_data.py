"""The parameters of the data that verification sends and expects, which is exact in any order of
reduction.

Floats are integers times a power of two that all ranks share at an index, small enough that every
partial sum is an integer of at most `significand` bits, so that any order, tree or chunking of a
sum gives the same bits. `engines/host_probe.py` computes the values, and `engines/probe.cu` the
same values on a GPU.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from busbw.core.dtypes import BY_NAME, DType
from busbw.core.floats import decode, encode, round_to_bits
from busbw.core.redops import RedOp

SENTINEL_BYTE = 0xA5
LARGEST_TOTAL_BITS = 31  # so that any total can be drawn from 32 bits, and total * seats fits 64
AVERAGE_SEARCH = 15


@dataclass(frozen=True, slots=True)
class Probe:
    """The data of one check: a seed, an element type, an operator (None without reduction) and
    the number of ranks.
    """

    seed: int
    dtype: DType
    op: RedOp | None
    ranks: int

    @property
    def limit(self) -> int:
        """Largest magnitude of a float partial sum, in units."""
        return dtype_limit(self.dtype)

    @property
    def average_limit(self) -> int:
        """Largest total of avg whose mean is exact for any way to divide; 0 if there is none
        (see `tolerance`).
        """
        return _average_limit(self.dtype, self.ranks)

    @property
    def tolerance(self) -> int:
        """Allowed error in units in the last place: 0, but 2 for a float avg over a number of
        ranks by which the type cannot divide.
        """
        return (
            2
            if self.op and self.op.name == "avg" and self.dtype.is_float and self.average_limit == 0
            else 0
        )

    def text(self, bits: int) -> str:
        """A value as text."""
        if self.dtype.is_float:
            if bits == 1 << (self.dtype.bits - 1):
                return "-0.0"  # a wrong sign must be visible
            value = decode(bits, self.dtype)
            return repr(float(value)) if isinstance(value, Fraction) else value
        return str(
            bits - (1 << self.dtype.bits)
            if self.dtype.kind == "int" and bits >> (self.dtype.bits - 1)
            else bits
        )


@lru_cache(maxsize=256)
def _average_limit(dtype: DType, ranks: int) -> int:
    """Largest total A such that ranks * s is exact for every s <= A, and every common way to divide
    it gives exactly s.

    NCCL multiplies each contribution by 1/n, rounded to the type or to float, before adding; other
    libraries divide the sum.
    """
    if not dtype.is_float:
        return min(
            ((1 << (dtype.bits - (dtype.kind == "int"))) - 1) // ranks,
            (1 << LARGEST_TOTAL_BITS) - 1,
        )
    inverses = [decode(round_to_bits(Fraction(1, ranks), t), t) for t in (dtype, BY_NAME["float"])]
    safe = 0
    for s in range(1, min(dtype_limit(dtype) // ranks, AVERAGE_SEARCH) + 1):
        products = {
            round_to_bits(ranks * s * inverse, dtype)
            for inverse in inverses
            if isinstance(inverse, Fraction)
        }
        if products != {encode(s, 0, dtype)}:
            break
        safe = s
    return safe


def dtype_limit(dtype: DType) -> int:
    """Largest exact integer for sums of a float type, at most 31 bits."""
    return (1 << min(dtype.significand, LARGEST_TOTAL_BITS)) - 1
