"""Durations and bit rates with their units: in arguments, and for people."""

import math
import re

from busbw.core.errors import UsageError

DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
BIT_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_NUMBER = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*", re.ASCII)


def duration(text: str, bare: float = math.nan) -> float:
    """Seconds from `50us`, `1.5ms` or `2s`; nan for other text.

    `bare` is the unit of a number without one, in seconds.
    """
    return _value(text, {**DURATIONS, "": bare})


def parse_delay(text: str, option: str) -> float:
    """Seconds from `50us`, `1.5ms`, `2s` or `0`; UsageError for other text, also for a number
    without its unit.
    """
    seconds = 0.0 if text.strip() == "0" else duration(text)
    if math.isnan(seconds):
        raise UsageError(
            f"{option} {text}: it is not a time",
            f"give a number with us, ms or s, like {option} 50us",
        )
    return seconds


def parse_bit_rate(text: str, option: str) -> float:
    """Bytes per second from `25gbit` or `100Mbit/s`: factors of 1000, as tc has them; UsageError
    for other text, and for 0.
    """
    rate = _value(text.strip().lower().removesuffix("/s"), BIT_RATES) / 8
    if not 0 < rate < math.inf:
        raise UsageError(
            f"{option} {text}: it is not a rate above 0",
            f"give a number with kbit, mbit or gbit, like {option} 25gbit",
        )
    return rate


def _value(text: str, factors: dict[str, float] | dict[str, int]) -> float:
    match = _NUMBER.fullmatch(text)
    return float(match.group(1)) * factors.get(match.group(2), math.nan) if match else math.nan


def span(seconds: float) -> str:
    """A duration for people: `10 s`, `2.5 min`, `12 h`, `3 d`."""
    size, name = next((unit for unit in _SPANS if seconds >= unit[0]), _SPANS[-1])
    value = seconds / size
    return f"{round(value, 1 if value < 10 else None):g} {name}"
