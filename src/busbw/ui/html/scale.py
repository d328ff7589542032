"""Axes: the pixel of a value, and which values are marked."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_RATIO = 5.0  # of an axis' ends, so that a run of one size gets two ticks
BETWEEN = ((1, 2, 5), (1, 3), (1,))  # factors of a power of ten
SIZE_STEPS = (1, 2, 3, 5, 10, 20)  # powers of two from one tick to the next


@dataclass(frozen=True, slots=True)
class Axis:
    """`low` to `high` spread over pixels `start` to `end`; of a logarithmic axis both are above
    0.
    """

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        scaled, low, high = (
            (value, self.low, self.high)
            if self.linear
            else map(math.log, (value, self.low, self.high))
        )
        return self.start + (scaled - low) / (high - low) * (self.end - self.start)


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within the ends, at most `most`."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(
        step
        for step in (power, 2 * power, 5 * power, 10 * power, 20 * power)
        if (high - low) / step < most
    )
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def ends(values: Iterable[float], below: float, above: float) -> tuple[float, float]:
    """Lowest and highest value of an axis that holds `values` (each above 0), with a share of
    its length free at either end.
    """
    known = list(values)
    low, high = min(known, default=1.0), max(known, default=1.0)
    if high < low * LEAST_RATIO:
        centre = math.sqrt(low * high)
        low, high = centre / math.sqrt(LEAST_RATIO), centre * math.sqrt(LEAST_RATIO)
    ratio = high / low
    return low / ratio**below, high * ratio**above


def ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten within the ends, with values between them as `most` ticks allow; not all
    powers where there are more than that.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for between in BETWEEN:
        found = [
            factor * 10.0**power
            for power in powers
            for factor in between
            if low <= factor * 10.0**power <= high
        ]
        if len(found) <= most:
            return found
    return found[:: -(-len(found) // most)]


def size_ticks(low: float, high: float, most: int) -> list[int]:
    """Powers of two within the ends (bytes), with equal steps between them, at most `most`."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = next((step for step in SIZE_STEPS if (last - first) // step < most), SIZE_STEPS[-1])
    return [1 << power for power in range(max(first, 0), last + 1, step)]
