"""The data that verification sends and expects, in numpy.

It is a function of (seed, index, rank), computed for a chunk of indexes at a time. Each value and
each expected result costs O(1) for any number of ranks: contributions telescope along the seats, a
rotation of the ranks that is random for each element. `probe.cu` computes the same bits on a GPU.
"""

from functools import cache

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from busbw.core.dtypes import DType
from busbw.engines.base import Probe

Words = NDArray[np.uint64]
Bits = NDArray[np.unsignedinteger]

LANE_TOTALS, LANE_SEAT, LANE_FIRST_SEAT = 0, 1, 8
PROD_SEATS_INT, PROD_SEATS_FLOAT = 8, 5
MASK64 = (1 << 64) - 1

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LANE = 0xD1B54A32D192ED03
_SEED = 0xA24BAED4963EE407
_LOW = np.uint64(0xFFFFFFFF)
_32, _1 = np.uint64(32), np.uint64(1)

_SCALARS: dict[str, type] = {
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


@cache
def scalar_type(dtype: DType) -> np.dtype:
    """The numpy type that computes with elements of `dtype`."""
    return np.dtype(_SCALARS.get(dtype.torch, dtype.torch))


@cache
def bits_type(dtype: DType) -> np.dtype:
    """The unsigned integer type as wide as `dtype`, in which bit patterns are compared."""
    return np.dtype(f"u{dtype.itemsize}")


def _below(bits32: Words, limit: int | Words) -> Words:
    """Numbers in [0, limit) from 32 random bits.

    It multiplies and shifts, because division would be slow on a GPU.
    """
    factor = np.uint64(limit) if isinstance(limit, int) else limit
    return bits32 * factor >> _32


def _share(total: Words, seat: Words, seats: int) -> Words:
    """The part of one seat if `total` is divided over `seats` as evenly as possible.

    The parts add up to the total.
    """
    if seats == 1:
        return total
    if seats == 2:  # the usual case of few ranks, without a division
        half = total >> _1
        return np.where(seat == 0, half, total - half)
    divisor = np.uint64(seats)
    return total * (seat + _1) // divisor - total * seat // divisor


class Chunk:
    """Elements [first, first + length) of every rank's send buffer, and of the result."""

    def __init__(self, probe: Probe, first: int, length: int) -> None:
        self.probe = probe
        index = np.arange(first + 1, first + 1 + length, dtype=np.uint64)
        self._base = index * _GOLDEN + np.uint64(probe.seed * _SEED & MASK64)
        self._cache: dict[int, Words] = {}

    def sent(self, rank: int) -> Bits:
        """Bit patterns that `rank` sends."""
        op = self.probe.op
        if op is None:
            return self._plain(rank)
        if self.probe.dtype.is_float:
            return self._float_input(op.name, rank)
        return self._to_bits(self._int_input(op.name, rank))

    def reduced(self) -> Bits:
        """Bit patterns that the reduction over all ranks must give."""
        op = self.probe.op
        assert op is not None
        if self.probe.dtype.is_float:
            return self._float_result(op.name)
        return self._to_bits(self._int_result(op.name))

    def _hash(self, lane: int | Words) -> Words:
        """64 pseudorandom bits of seed, index and lane, by the finalizer of splitmix64."""
        if isinstance(lane, int):
            known = self._cache.get(lane)
            if known is None:
                known = self._cache[lane] = self._mix(self._base + np.uint64(lane * _LANE & MASK64))
            return known
        return self._mix(self._base + lane * np.uint64(_LANE))

    @staticmethod
    def _mix(z: Words) -> Words:
        z ^= z >> np.uint64(30)
        z *= _MIX_1
        z ^= z >> np.uint64(27)
        z *= _MIX_2
        z ^= z >> np.uint64(31)
        return z

    def _step(self, seat: int | Words) -> Words:
        if isinstance(seat, int):
            return self._hash(seat + LANE_FIRST_SEAT)
        return self._hash(seat + np.uint64(LANE_FIRST_SEAT))

    def _seat(self, rank: int, seats: int) -> Words:
        seat = _below(self._hash(LANE_SEAT) & _LOW, seats) + np.uint64(rank % seats)
        return np.where(seat >= np.uint64(seats), seat - np.uint64(seats), seat)

    def _to_bits(self, words: Words) -> Bits:
        return words.astype(bits_type(self.probe.dtype))

    def _plain(self, rank: int) -> Bits:
        bits = self._to_bits(self._hash(LANE_FIRST_SEAT + rank))
        if not self.probe.dtype.is_float:
            return bits
        # The two top exponent bits become 01 or 10: finite, normal, in the middle half of the
        # exponents.
        kind = bits.dtype.type
        top = kind(1 << (self.probe.dtype.bits - 2))
        next_bit = kind(1 << (self.probe.dtype.bits - 3))
        return np.where(bits & top != 0, bits & ~next_bit, bits | next_bit)

    # -- floats ------------------------------------------------------------------------------------

    def _scale(self) -> NDArray[np.float64]:
        """2^exponent of every element, built in the exponent field of a double."""
        low, high = self.probe.dtype.unit_exponents
        if self.probe.tolerance:
            # value / ranks must still be a normal number
            low = min(high, low + self.probe.ranks.bit_length())
        drawn = _below(self._hash(LANE_SEAT) >> _32, high - low + 1)
        return (drawn + np.uint64(low + 1023) << np.uint64(52)).view(np.float64)

    def _encode(self, units: NDArray[np.int64], scale: NDArray[np.float64]) -> Bits:
        # Exact: units have at most 53 bits here, and the product is representable in the type.
        # Adding zero makes -0 into +0.
        with np.errstate(all="ignore"):
            value = units.astype(np.float64) * scale + 0.0
            return value.astype(scalar_type(self.probe.dtype)).view(bits_type(self.probe.dtype))

    def _totals(self, op: str) -> tuple[Words, Words]:
        """(sum over positive seats, sum over negative seats), different if both exist."""
        probe, h = self.probe, self._hash(LANE_TOTALS)
        limit = probe.average_limit if op == "avg" else probe.limit
        if op == "mulsum":
            limit //= 2
        plus = _below(h & _LOW, max(limit, 1)) + _1
        if probe.ranks == 1 or limit <= 1:
            return plus, np.zeros_like(plus)
        minus = _below(h >> _32, limit) + _1
        if op == "mulsum":
            return plus + plus - _1, minus  # odd, and minus counts twice: never equal
        return plus, np.where(minus == plus, np.where(plus == limit, _1, plus + _1), minus)

    def _float_input(self, op: str, rank: int) -> Bits:
        probe, n = self.probe, self.probe.ranks
        if op in ("sum", "avg"):
            seat = self._seat(rank, n)
            if op == "avg" and probe.tolerance:
                single = np.where(seat == 0, self._single(), np.uint64(0))
                return self._encode(single.view(np.int64), self._scale())
            plus, minus = self._totals(op)
            even = _share(plus, seat >> _1, (n + 1) // 2).view(np.int64)
            odd = _share(minus, seat >> _1, n // 2).view(np.int64) if n > 1 else even
            units = np.where(seat & _1 == 0, even, -odd)
            return self._encode(units * n if op == "avg" else units, self._scale())
        if op == "mulsum":
            group, seats = rank % 2, (n + 1 - rank % 2) // 2
            share = _share(self._totals(op)[group], self._seat(rank // 2, seats), seats)
            units = share.view(np.int64)
            return self._encode(-units if group else units, self._scale())
        if op == "prod":
            return self._prod_input(self._seat(rank, n))
        return self._encode(self._extreme_units(op, self._seat(rank, n)), self._scale())

    def _float_result(self, op: str) -> Bits:
        probe = self.probe
        if op == "avg" and probe.tolerance:
            value = self._single().astype(np.float64) / probe.ranks * self._scale()
            return value.astype(scalar_type(probe.dtype)).view(bits_type(probe.dtype))
        if op in ("sum", "avg", "mulsum"):
            plus, minus = (total.view(np.int64) for total in self._totals(op))
            return self._encode(plus - minus * (2 if op == "mulsum" else 1), self._scale())
        if op == "prod":
            negative = (self._step(0) ^ self._step(probe.ranks)) & _1
            factor = 2.0 if (min(probe.ranks, PROD_SEATS_FLOAT) - 1) % 2 else 1.0
            return self._signed(self._significand() * factor, negative)
        return self._encode(self._extreme_units(op, None), self._scale())

    def _single(self) -> Words:
        """The units of seat 0, the only contribution if no exact average exists."""
        return _below(self._hash(LANE_TOTALS) & _LOW, self.probe.limit) + _1

    def _significand(self) -> NDArray[np.float64]:
        p = self.probe.dtype.significand
        units = self._hash(LANE_TOTALS) & np.uint64((1 << (p - 1)) - 1) | np.uint64(1 << (p - 1))
        return units.astype(np.float64) * 2.0 ** (1 - p)

    def _signed(self, magnitude: NDArray[np.float64], negative: Words) -> Bits:
        value = np.where(negative != 0, -magnitude, magnitude)
        return value.astype(scalar_type(self.probe.dtype)).view(bits_type(self.probe.dtype))

    def _prod_input(self, seat: Words) -> Bits:
        """Seat 0 has a random significand, seats 1 to 4 alternately double and halve, and others
        are 1.

        Signs telescope.
        """
        negative = (self._step(seat) ^ self._step(seat + _1)) & _1
        factor = np.where(seat & _1 != 0, 2.0, 0.5)
        factor = np.where(seat < PROD_SEATS_FLOAT, factor, 1.0)
        return self._signed(np.where(seat == 0, self._significand(), factor), negative)

    def _extreme_units(self, op: str, seat: Words | None) -> NDArray[np.int64]:
        """Seat 0, and the result (None), hold the extreme.

        All other seats hold less (max) or more (min).
        """
        limit = self.probe.limit
        top = _below(self._hash(LANE_TOTALS) & _LOW, 2 * limit).view(np.int64) + (1 - limit)
        if seat is not None:
            less = _below(self._step(seat) & _LOW, (top + limit).view(np.uint64)).view(np.int64)
            top = np.where(seat == 0, top, top - 1 - less)
        return top if op == "max" else -top

    # -- integers ----------------------------------------------------------------------------------

    def _int_input(self, op: str, rank: int) -> Words:
        n = self.probe.ranks
        if op == "sum":
            seat = self._seat(rank, n)
            return self._step(seat + _1) - self._step(seat)
        if op == "mulsum":
            group, seats = rank % 2, (n + 1 - rank % 2) // 2
            seat = self._seat(rank // 2, seats) + np.uint64(group * (n + 2))
            return self._step(seat + _1) - self._step(seat)
        if op == "avg":
            return _share(self._int_average(), self._seat(rank, n), n) * np.uint64(n)
        seat = self._seat(rank, n)
        if op == "prod":
            return np.where(seat < PROD_SEATS_INT, self._step(seat) | _1, _1)
        return self._extreme_int(op, seat)

    def _int_result(self, op: str) -> Words:
        n = self.probe.ranks
        if op == "sum":
            return self._step(n) - self._step(0)
        if op == "mulsum":
            odd: Words = self._step(n + 2 + n // 2) - self._step(n + 2)
            return self._step((n + 1) // 2) - self._step(0) + odd + odd
        if op == "avg":
            return self._int_average()
        if op == "prod":
            product = self._step(0) | _1
            for seat in range(1, min(n, PROD_SEATS_INT)):
                product = product * (self._step(seat) | _1)
            return product
        return self._extreme_int(op, None)

    def _int_average(self) -> Words:
        """A mean whose n-fold fits the type.

        It is not negative, so that rounding conventions of division do not matter.
        """
        return _below(self._hash(LANE_TOTALS) & _LOW, self.probe.average_limit + 1)

    def _extreme_int(self, op: str, seat: Words | None) -> Words:
        """Seat 0 is above all others within the upper 32 bits."""
        dtype = self.probe.dtype
        top = _below(self._hash(LANE_TOTALS) & _LOW, (1 << min(dtype.bits, 32)) - 1) + _1
        h = self._step(0 if seat is None else seat)
        value = top if seat is None else np.where(seat == 0, top, _below(h & _LOW, top))
        if dtype.bits == 64:
            value = value << _32 | h >> _32
        if op == "min":
            value = ~value
        return value ^ np.uint64(1 << (dtype.bits - 1)) if dtype.kind == "int" else value
