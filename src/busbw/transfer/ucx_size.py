"""The size of ucx_perftest's messages, from the figures of a row, which are rounded."""

import math
from dataclasses import dataclass

CLOSE = 0.01  # relative width of a range that still tells a size
MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The values that rounded figures allow."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @classmethod
    def product(
        cls, one: float, one_off: float, other: float, other_off: float, unit: float
    ) -> "SizeRange":
        """Of two figures, each within what it may be off."""
        low = max(0.0, one - one_off) * max(0.0, other - other_off)
        return cls(low * unit, (one + one_off) * (other + other_off) * unit)

    @classmethod
    def quotient(
        cls, one: float, one_off: float, other: float, other_off: float, unit: float
    ) -> "SizeRange":
        """As `product`, of one figure divided by the other."""
        low = max(0.0, one - one_off) / (other + other_off)
        most = other - other_off
        return cls(low * unit, (one + one_off) / most * unit if most > 0 else math.inf)


def message_size(sizes: SizeRange) -> int | None:
    """The roundest size in the range: a multiple of the largest power of 2 or 10. None if the
    range is too wide to tell, or has no integer.
    """
    low, high = math.ceil(sizes.low), sizes.high
    if low < 1 or high > MOST_BYTES or high - low > CLOSE * high:
        return low if low == 1 <= high < 2 else None
    steps = sorted([1 << power for power in range(51)] + [int(10**power) for power in range(16)])
    for step in reversed(steps):
        size = math.ceil(low / step) * step
        if size <= high:
            return size
    return None
