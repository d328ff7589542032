"""Which ends of links are slow, from the rates of pairs.

A pair runs at the rate of its slower end: the sender's transmit side or the receiver's receive
side. All pairs of a slow end are slow, so each end is judged by the 80th percentile of its rates
with ends that are not accused. Neither other traffic nor a slow peer lowers that.
"""

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from busbw.stats.intervals import nearest_rank

MIN_GAP = 0.10  # of the usual rate: less is normal variation between hosts
PAIR_GAP = 0.20  # a pair has one measurement, an end has several
DEVIATIONS = 6.0  # of healthy ends, and of healthy pairs
MAX_GAP = 0.50  # whatever the deviation is
UPPER_MAD_TO_SIGMA = 2.506  # of the upper half of a normal distribution
MIN_PEERS = 2  # with one, a slow end and a slow pair look alike


class PairRate(NamedTuple):
    """Bytes per second from one host to another, both as indices."""

    sender: int
    receiver: int
    rate: float


class End(NamedTuple):
    """One direction of one host's port."""

    host: int
    sends: bool


@dataclass(frozen=True, slots=True)
class EndpointRate:
    """The 80th percentile of the rates of an end's pairs, and the number of pairs."""

    end: End
    rate: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Solution:
    """The slow ends and pairs. Rates are in bytes per second.

    `usual` is what healthy ends reach; None if there are too few pairs to judge. `least` is the
    rate below which an end is slow. `pairs` are slow although neither of their ends is.
    """

    usual: float | None = None
    least: float = 0.0
    ends: tuple[EndpointRate, ...] = ()
    pairs: tuple[PairRate, ...] = ()


def solve(flows: Sequence[PairRate]) -> Solution:
    """The slow ends and slow pairs.

    Needs pairs of at least three hosts, and ends with two peers.
    """
    if len({flow.sender for flow in flows} | {flow.receiver for flow in flows}) < 3:
        return Solution()
    accused: set[End] = set()
    levels = _levels(flows, accused)
    if all(level.pairs < MIN_PEERS for level in levels.values()):
        return Solution()
    while True:
        healthy = [level.rate for end, level in levels.items() if end not in accused]
        usual, least = _band(healthy, MIN_GAP)
        slow = [
            end
            for end, level in levels.items()
            if end not in accused and level.rate < least and level.pairs >= MIN_PEERS
        ]
        if not slow:
            break
        accused.add(min(slow, key=lambda end: levels[end].rate))
        levels = _levels(flows, accused)
    # A slow peer may have lowered the level of an end before that peer was accused itself.
    slow_levels = tuple(
        levels[end] for end in sorted(accused) if end in levels and levels[end].rate < least
    )
    slow_ends = {level.end for level in slow_levels}
    return Solution(usual, least, slow_levels, _slow_pairs(flows, slow_ends, levels))


def _levels(flows: Iterable[PairRate], accused: Collection[End]) -> dict[End, EndpointRate]:
    """The 80th percentile of each end's rates with ends not accused; the largest of up to four."""
    rates: dict[End, list[float]] = {}
    for sender, receiver, rate in flows:
        transmit, receive = End(sender, True), End(receiver, False)
        if receive not in accused:
            rates.setdefault(transmit, []).append(rate)
        if transmit not in accused:
            rates.setdefault(receive, []).append(rate)
    return {
        end: EndpointRate(end, nearest_rank(sorted(end_rates), 80), len(end_rates))
        for end, end_rates in rates.items()
    }


def _band(values: Sequence[float], gap: float) -> tuple[float, float]:
    """The usual value, and the least normal value, which is at least `gap` of the usual below it.

    Both come from the upper half, so up to half of the values may be low.
    """
    upper = sorted(values)[len(values) // 2 :]
    usual = statistics.median(upper)
    spread = UPPER_MAD_TO_SIGMA * statistics.median(abs(value - usual) for value in upper)
    return usual, usual - max(gap * usual, min(DEVIATIONS * spread, MAX_GAP * usual))


def _slow_pairs(
    flows: Sequence[PairRate], slow: Collection[End], levels: Mapping[End, EndpointRate]
) -> tuple[PairRate, ...]:
    """Pairs far below the level of both of their ends."""
    shares = []
    for flow in flows:
        ends = End(flow.sender, True), End(flow.receiver, False)
        if all(end in levels and end not in slow for end in ends):
            shares.append((flow.rate / min(levels[end].rate for end in ends), flow))
    if not shares:
        return ()
    _, least = _band([share for share, _ in shares], PAIR_GAP)
    return tuple(flow for share, flow in shares if share < least)
