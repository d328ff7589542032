"""The data that verification sends and expects: functions of (seed, index, rank), exact in any order of reduction.

Floats are integers times a power of two that all ranks share at an index, small enough that every partial sum is an integer of at
most `significand` bits, so that any order, tree or chunking of a sum gives the same bits. Each value and each expected result costs
O(1) for any number of ranks: contributions telescope along the seats, a rotation of the ranks that is random for each element.

The numpy and CUDA versions in `engines/` compute the same; this version, in Python integers, is the definition.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from busbw.core.dtypes import BY_NAME, DType
from busbw.core.floats import decode, encode, round_to_bits
from busbw.core.redops import RedOp

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
LANE_TOTALS, LANE_SEAT, LANE_FIRST_SEAT = 0, 1, 8
SENTINEL_BYTE = 0xA5
PROD_SEATS_INT, PROD_SEATS_FLOAT = 8, 5
LARGEST_TOTAL_BITS = 31  # so that `below` can draw any total from 32 bits, and total * seats fits 64
AVERAGE_SEARCH = 15


def hash64(seed: int, index: int, lane: int) -> int:
    """64 pseudorandom bits of seed, index and lane, by the finalizer of splitmix64."""
    z = (seed * 0xA24BAED4963EE407 + (index + 1) * 0x9E3779B97F4A7C15 + lane * 0xD1B54A32D192ED03) & MASK64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK64
    return z ^ (z >> 31)


def below(bits32: int, limit: int) -> int:
    """A number in [0, limit) from 32 random bits, by multiply and shift (division would be slow on a GPU)."""
    return bits32 * limit >> 32


def share(total: int, seat: int, seats: int) -> int:
    """The part of one seat when `total` is divided over `seats` as evenly as possible; the parts add up to total."""
    return total * (seat + 1) // seats - total * seat // seats


@dataclass(frozen=True, slots=True)
class Probe:
    """The data of one check: a seed, an element type, an operator (None without reduction) and the number of ranks."""

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
        """Largest total of avg whose mean is exact for any way to divide; 0 if there is none (see `tolerance`)."""
        return _average_limit(self.dtype, self.ranks)

    @property
    def tolerance(self) -> int:
        """Allowed error in units in the last place: 0, but 2 for a float avg over a number of ranks by which the type cannot divide."""
        return 2 if self.op and self.op.name == "avg" and self.dtype.is_float and self.average_limit == 0 else 0

    def sent(self, rank: int, index: int) -> int:
        """Bits of element `index` of `rank`'s send buffer."""
        if self.op is None:
            return self._plain(rank, index)
        return self._float_input(rank, index) if self.dtype.is_float else self._int_input(rank, index)

    def reduced(self, index: int) -> int:
        """Bits of element `index` reduced over all ranks."""
        return self._float_result(index) if self.dtype.is_float else self._int_result(index)

    def text(self, bits: int) -> str:
        """A value as text."""
        if self.dtype.is_float:
            if bits == 1 << (self.dtype.bits - 1):
                return "-0.0"  # a wrong sign must be visible
            value = decode(bits, self.dtype)
            return repr(float(value)) if isinstance(value, Fraction) else value
        return str(bits - (1 << self.dtype.bits) if self.dtype.kind == "int" and bits >> (self.dtype.bits - 1) else bits)

    # -- data that is only moved ------------------------------------------------------------------------------------------------

    def _plain(self, rank: int, index: int) -> int:
        bits = hash64(self.seed, index, LANE_FIRST_SEAT + rank) & ((1 << self.dtype.bits) - 1)
        if not self.dtype.is_float:
            return bits
        # The two top exponent bits become 01 or 10: finite, normal, in the middle half of the exponents.
        top = self.dtype.bits - 2
        return bits & ~(1 << (top - 1)) if bits >> top & 1 else bits | 1 << (top - 1)

    # -- seats ------------------------------------------------------------------------------------------------------------------

    def _seat(self, rank: int, index: int, seats: int | None = None) -> int:
        seats = self.ranks if seats is None else seats
        return (rank + below(hash64(self.seed, index, LANE_SEAT) & MASK32, seats)) % seats

    def _exponent(self, index: int) -> int:
        low, high = self.dtype.unit_exponents
        if self.tolerance:
            low = min(high, low + self.ranks.bit_length())  # so that value / ranks is still a normal number
        return low + below(hash64(self.seed, index, LANE_SEAT) >> 32, high - low + 1)

    def _totals(self, index: int) -> tuple[int, int]:
        """(sum over positive seats, sum over negative seats), different if both exist."""
        op = self.op.name if self.op else ""
        h = hash64(self.seed, index, LANE_TOTALS)
        low, high = h & MASK32, h >> 32
        limit = self.average_limit if op == "avg" else self.limit
        if op == "mulsum":
            limit //= 2
        if self.ranks == 1 or limit <= 1:
            return 1 + below(low, max(limit, 1)), 0
        plus, minus = 1 + below(low, limit), 1 + below(high, limit)
        if op == "mulsum":
            return (2 * plus - 1, minus)  # odd, and minus counts twice: never equal
        return plus, minus if minus != plus else plus % limit + 1

    # -- floats -----------------------------------------------------------------------------------------------------------------

    def _float_input(self, rank: int, index: int) -> int:
        op = self.op.name if self.op else ""
        n, e = self.ranks, self._exponent(index)
        if op in ("sum", "avg"):
            plus, minus = self._totals(index)
            seat = self._seat(rank, index)
            if op == "avg" and self.tolerance:
                return encode(self._single(index) if seat == 0 else 0, e, self.dtype)
            units = share(plus, seat // 2, (n + 1) // 2) if seat % 2 == 0 else -share(minus, seat // 2, n // 2)
            return encode(units * (n if op == "avg" else 1), e, self.dtype)
        if op == "mulsum":
            plus, minus = self._totals(index)
            group, seats = rank % 2, (n + 1 - rank % 2) // 2
            units = share((plus, minus)[group], self._seat(rank // 2, index, seats), seats)
            return encode(-units if group else units, e, self.dtype)
        if op == "prod":
            return self._prod_input(self._seat(rank, index), index)
        return encode(self._extreme_units(self._seat(rank, index), index), e, self.dtype)

    def _float_result(self, index: int) -> int:
        op = self.op.name if self.op else ""
        e = self._exponent(index)
        if op == "avg" and self.tolerance:
            value = Fraction(self._single(index), self.ranks) * Fraction(2) ** e
            return round_to_bits(value, self.dtype)
        if op in ("sum", "avg", "mulsum"):
            plus, minus = self._totals(index)
            return encode(plus - minus * (2 if op == "mulsum" else 1), e, self.dtype)
        if op == "prod":
            return self._prod_result(index)
        return encode(self._extreme_units(0, index), e, self.dtype)

    def _single(self, index: int) -> int:
        """The units of seat 0, the only contribution if no exact average exists."""
        return 1 + below(hash64(self.seed, index, LANE_TOTALS) & MASK32, self.limit)

    def _sign(self, seat: int, index: int) -> int:
        return hash64(self.seed, index, LANE_FIRST_SEAT + seat) & 1

    def _prod_input(self, seat: int, index: int) -> int:
        """Seat 0 has a random significand, seats 1 to 4 alternately double and halve, others are 1; signs telescope."""
        p = self.dtype.significand
        negative = self._sign(seat, index) ^ self._sign(seat + 1, index)
        units, e = (1, 0) if seat else (self._significand(index), 1 - p)
        if 0 < seat < PROD_SEATS_FLOAT:
            e = 1 if seat % 2 else -1
        return encode(-units if negative else units, e, self.dtype)

    def _prod_result(self, index: int) -> int:
        negative = self._sign(0, index) ^ self._sign(self.ranks, index)
        halved_or_doubled = min(self.ranks, PROD_SEATS_FLOAT) - 1
        units = self._significand(index)
        return encode(-units if negative else units, 1 - self.dtype.significand + halved_or_doubled % 2, self.dtype)

    def _significand(self, index: int) -> int:
        p = self.dtype.significand
        return 1 << (p - 1) | hash64(self.seed, index, LANE_TOTALS) & ((1 << (p - 1)) - 1)

    def _extreme_units(self, seat: int, index: int) -> int:
        """Seat 0 holds the extreme; all other seats hold less (max) or more (min)."""
        limit = self.limit
        top = 1 - limit + below(hash64(self.seed, index, LANE_TOTALS) & MASK32, 2 * limit)
        units = top if seat == 0 else top - 1 - below(hash64(self.seed, index, LANE_FIRST_SEAT + seat) & MASK32, top + limit)
        return units if self.op and self.op.name == "max" else -units

    # -- integers ---------------------------------------------------------------------------------------------------------------

    def _int_input(self, rank: int, index: int) -> int:
        op, n, mask = self.op.name if self.op else "", self.ranks, (1 << self.dtype.bits) - 1
        if op == "sum":
            seat = self._seat(rank, index)
            return self._step(seat + 1, index) - self._step(seat, index) & mask
        if op == "mulsum":
            group, seats = rank % 2, (n + 1 - rank % 2) // 2
            seat, base = self._seat(rank // 2, index, seats), group * (n + 2)
            return self._step(base + seat + 1, index) - self._step(base + seat, index) & mask
        if op == "avg":
            return n * share(self._int_average(index), self._seat(rank, index), n) & mask
        if op == "prod":
            seat = self._seat(rank, index)
            return (self._step(seat, index) | 1) & mask if seat < PROD_SEATS_INT else 1
        return self._extreme_int(self._seat(rank, index), index)

    def _int_result(self, index: int) -> int:
        op, n, mask = self.op.name if self.op else "", self.ranks, (1 << self.dtype.bits) - 1
        if op == "sum":
            return self._step(n, index) - self._step(0, index) & mask
        if op == "mulsum":
            even = self._step((n + 1) // 2, index) - self._step(0, index)
            odd = self._step(n + 2 + n // 2, index) - self._step(n + 2, index)
            return even + 2 * odd & mask
        if op == "avg":
            return self._int_average(index)
        if op == "prod":
            product = 1
            for seat in range(min(n, PROD_SEATS_INT)):
                product = product * (self._step(seat, index) | 1) & mask
            return product
        return self._extreme_int(0, index)

    def _step(self, seat: int, index: int) -> int:
        return hash64(self.seed, index, LANE_FIRST_SEAT + seat)

    def _int_average(self, index: int) -> int:
        """A mean whose n-fold fits the type; not negative, so that rounding conventions of division do not matter."""
        return below(hash64(self.seed, index, LANE_TOTALS) & MASK32, self.average_limit + 1)

    def _extreme_int(self, seat: int, index: int) -> int:
        """Seat 0 is above all others within the upper 32 bits."""
        width = min(self.dtype.bits, 32)
        top = 1 + below(hash64(self.seed, index, LANE_TOTALS) & MASK32, (1 << width) - 1)
        h = hash64(self.seed, index, LANE_FIRST_SEAT + seat)
        value = top if seat == 0 else below(h & MASK32, top)
        if self.dtype.bits == 64:
            value = value << 32 | h >> 32
        if self.op and self.op.name == "min":
            value ^= (1 << self.dtype.bits) - 1
        return value ^ (1 << (self.dtype.bits - 1)) if self.dtype.kind == "int" else value


@lru_cache(maxsize=256)
def _average_limit(dtype: DType, ranks: int) -> int:
    """Largest total A such that ranks * s is exact for every s <= A, and every common way to divide it gives exactly s.

    NCCL multiplies each contribution by 1/n, rounded to the type or to float, before adding; other libraries divide the sum.
    """
    if not dtype.is_float:
        return min(((1 << (dtype.bits - (dtype.kind == "int"))) - 1) // ranks, (1 << LARGEST_TOTAL_BITS) - 1)
    inverses = [decode(round_to_bits(Fraction(1, ranks), t), t) for t in (dtype, BY_NAME["float"])]
    safe = 0
    for s in range(1, min(dtype_limit(dtype) // ranks, AVERAGE_SEARCH) + 1):
        products = {round_to_bits(ranks * s * inverse, dtype) for inverse in inverses if isinstance(inverse, Fraction)}
        if products != {encode(s, 0, dtype)}:
            break
        safe = s
    return safe


def dtype_limit(dtype: DType) -> int:
    """Largest exact integer for sums of a float type, at most 31 bits."""
    return (1 << min(dtype.significand, LARGEST_TOTAL_BITS)) - 1
