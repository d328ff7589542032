"""Which ends of links are slow, from the rates of pairs.

The rate of a pair is that of its slower end: the sender's way out or the receiver's way in. All pairs of a slow end are slow, so each end
is judged by the 80th percentile of its rates with ends that are not accused. Neither other traffic nor a slow peer lowers that.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from busbw.stats.summary import nearest_rank

LEAST_GAP = 0.10  # of the usual rate: less is normal variation between hosts
DEVIATIONS = 6.0  # of healthy ends, and of healthy pairs
MAD_TO_SIGMA = 1.4826  # of a normal distribution
PAIR_GAP = 0.20  # one pair has one measurement, an end has several
LEAST_PEERS = 2


class Measured(NamedTuple):
    """Bytes per second from one host to another, both as indices."""

    sender: int
    receiver: int
    rate: float


class End(NamedTuple):
    """One direction of one host's port."""

    host: int
    sends: bool


@dataclass(frozen=True, slots=True)
class SlowEnd:
    """An end whose pairs are slow: the 80th percentile of their rates, and how many there are."""

    end: End
    rate: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Solution:
    """`usual` is the median of healthy ends, None if there are too few pairs to judge. `least` is the rate below which an end is slow.

    `pairs` are slow although neither of their ends is.
    """

    usual: float | None = None
    least: float = 0.0
    ends: tuple[SlowEnd, ...] = ()
    pairs: tuple[Measured, ...] = ()


def solve(flows: Sequence[Measured]) -> Solution:
    """The slow ends and slow pairs. Needs pairs of at least three hosts."""
    if len({flow.sender for flow in flows} | {flow.receiver for flow in flows}) < 3:
        return Solution()
    accused: dict[End, SlowEnd] = {}
    while True:
        levels = _levels(flows, accused)
        if not levels:
            return Solution()
        usual, least = _band([level for end, (level, _) in levels.items() if end not in accused])
        slowest = min((end for end in levels if end not in accused), key=lambda end: levels[end][0], default=None)
        if slowest is None or levels[slowest][0] >= least:
            break
        accused[slowest] = SlowEnd(slowest, *levels[slowest])
    # A slow peer may have lowered the level of an end before that peer was accused itself.
    kept = [SlowEnd(end, *levels[end]) for end in accused if end in levels and levels[end][0] < least]
    return Solution(usual, least, tuple(kept), _slow_pairs(flows, {one.end for one in kept}, levels))


def _levels(flows: Iterable[Measured], accused: Mapping[End, object]) -> dict[End, tuple[float, int]]:
    """For each end the 80th percentile of its rates with ends that are not accused, and their number."""
    rates: dict[End, list[float]] = {}
    for sender, receiver, rate in flows:
        out, into = End(sender, True), End(receiver, False)
        if into not in accused:
            rates.setdefault(out, []).append(rate)
        if out not in accused:
            rates.setdefault(into, []).append(rate)
    return {end: (_level(some), len(some)) for end, some in rates.items() if len(some) >= LEAST_PEERS}


def _level(rates: Sequence[float]) -> float:
    """The nearest rank; the largest of up to four."""
    return nearest_rank(sorted(rates), 80)


def _band(levels: Sequence[float]) -> tuple[float, float]:
    """The usual level, by the upper half of the ends, and the least one that is still normal."""
    usual = statistics.median(sorted(levels)[len(levels) // 2 :])
    spread = MAD_TO_SIGMA * statistics.median(abs(level - usual) for level in levels)
    return usual, usual - max(LEAST_GAP * usual, min(DEVIATIONS * spread, usual / 2))


def _slow_pairs(flows: Sequence[Measured], slow: set[End], levels: Mapping[End, tuple[float, int]]) -> tuple[Measured, ...]:
    """Pairs far below the level of both of their ends."""
    shares = []
    for flow in flows:
        ends = End(flow.sender, True), End(flow.receiver, False)
        if not slow.intersection(ends) and all(end in levels for end in ends):
            shares.append((flow.rate / min(levels[end][0] for end in ends), flow))
    if not shares:
        return ()
    middle = statistics.median(one for one, _ in shares)
    spread = MAD_TO_SIGMA * statistics.median(abs(one - middle) for one, _ in shares)
    least = middle - max(PAIR_GAP, DEVIATIONS * spread)
    return tuple(flow for one, flow in shares if one < least)
