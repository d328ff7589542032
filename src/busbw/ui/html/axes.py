"""Axes of plots: the pixel of a value, and the ticks of values, sizes and times."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from busbw.core.sizes import format_size
from busbw.ui.number_formats import TIME_UNITS

MIN_RATIO = 5.0  # of an axis' ends, so that a run of one size gets two ticks
TICK_FACTORS = ((1, 2, 5), (1, 3), (1,))  # of a power of ten
SIZE_STEPS = (1, 2, 3, 5, 10, 20)  # powers of two from one tick to the next
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(minutes * MINUTE_S for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_S for days in (1, 2, 7, 14, 28)),
)

# A value of the axis, and the text there.
Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Axis:
    """Values `low` to `high` over pixels `start` to `end`; both above 0 on a logarithmic axis."""

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if not self.linear:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear_ticks(low: float, high: float, limit: int) -> list[float]:
    """At most `limit` multiples of 1, 2 or 5 times a power of ten from `low` to `high`."""
    power = 10.0 ** math.floor(math.log10((high - low) / limit))
    steps = (power, 2 * power, 5 * power, 10 * power, 20 * power)
    step = next(step for step in steps if (high - low) / step < limit)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def ends(values: Iterable[float], below: float, above: float) -> tuple[float, float]:
    """Lowest and highest value of a logarithmic axis that holds `values`, each above 0.

    `below` and `above` are the shares of its length that stay free at the ends.
    """
    values = list(values)
    low, high = min(values, default=1.0), max(values, default=1.0)
    if high < low * MIN_RATIO:
        center = math.sqrt(low * high)
        low, high = center / math.sqrt(MIN_RATIO), center * math.sqrt(MIN_RATIO)
    ratio = high / low
    return low / ratio**below, high * ratio**above


def ticks(low: float, high: float, limit: int) -> list[float]:
    """At most `limit` ticks of a logarithmic axis from `low` to `high`.

    These are the powers of ten, with values between them if there is room; powers are left out if
    there are more than `limit`.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in TICK_FACTORS:
        values = [factor * 10.0**power for power in powers for factor in factors]
        values = [value for value in values if low <= value <= high]
        if len(values) <= limit:
            return values
    return values[:: -(-len(values) // limit)]


def size_ticks(low: float, high: float, limit: int) -> list[int]:
    """At most `limit` powers of two from `low` to `high` (bytes), with equal steps between them."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = next((step for step in SIZE_STEPS if (last - first) // step < limit), SIZE_STEPS[-1])
    return [1 << power for power in range(max(first, 0), last + 1, step)]


@dataclass(frozen=True, slots=True)
class Scale:
    """What an x axis shows: its title and, from lowest and highest value and a limit, its ticks.

    `ends` are of a linear axis; those of a logarithmic one are chosen by the values.
    """

    title: str
    ticks: Callable[[float, float, int], list[Tick]]
    ends: tuple[float, float] | None = None


def _size_texts(low: float, high: float, limit: int) -> list[Tick]:
    return [(size, format_size(size)) for size in size_ticks(low, high, limit)]


SIZES = Scale("message size", _size_texts)


def time_ticks(low: float, high: float, limit: int) -> list[Tick]:
    """At most `limit` round times in UTC from `low` to `high` (Unix s); dates if days apart."""
    fitting = (step for step in TIME_STEPS_S if (high - low) / step < limit)
    whole_days = math.ceil((high - low) / (limit - 1) / DAY_S) * DAY_S
    step = next(fitting, whole_days)
    form = "%H:%M"
    if step < MINUTE_S:
        form = "%H:%M:%S"
    if step >= DAY_S:
        form = "%m-%d"
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [
        (number * step, datetime.fromtimestamp(number * step, UTC).strftime(form))
        for number in numbers
    ]


def gb_tick(value: float) -> str:
    """Bytes per second as GB/s, short enough for the margin: `400`, `0.001`, `1e-05`, `0`."""
    rate = value / 1e9
    return f"{rate:.0e}" if 0 < rate < 0.9e-4 else f"{rate:.4f}".rstrip("0").rstrip(".")


def time_tick(value: float) -> str:
    """Seconds in the unit that suits them, short enough for the margin: `200 us`, `1 ms`."""
    for scale, unit in TIME_UNITS:
        if value >= scale * 0.99:
            return f"{value / scale:g} {unit}"
    return f"{value / 1e-9:g} ns"
