"""Finds slow hosts, or two that are slow only together, with a few runs of a collective over subsets of the hosts.

A collective is as fast as its slowest host. Groups of equal size are compared, since the rate may depend on the number of hosts. `halves`
needs the fewest runs, but sees a slow pair only inside one of its first groups. `pairs` runs every two hosts and assumes nothing.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from busbw.link.schedule import rounds
from busbw.link.solver import Measured, solve
from busbw.stats.summary import nearest_rank

RunOver = Callable[[Sequence[int]], float | None]  # the rate of a collective over these hosts; None if it failed
SLOW = 0.85  # of the usual rate: below, a group is slow
GROUPS = 8  # of the first step
CONFIRMATIONS = 3  # runs with random fast peers; their median counts


@dataclass(frozen=True, slots=True)
class Found:
    """A slow host, or two that are slow only together. `share` is their share of the usual rate; None if their runs failed."""

    hosts: tuple[int, ...]
    share: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found, and the usual rate; None if too few runs succeeded to know it."""

    found: tuple[Found, ...]
    usual: float | None


@dataclass
class _Search:
    """The runs of one search."""

    run: RunOver
    draw: random.Random
    size: int = 2
    usual: float = 0.0
    fast: list[int] = field(default_factory=list)

    def share(self, group: Sequence[int]) -> float:
        """The rate of a group, filled up with fast hosts to the common size, as a share of the usual rate; 0 if it failed."""
        others = [host for host in self.fast if host not in group]
        filled = [*group, *self.draw.sample(others, min(max(0, self.size - len(group)), len(others)))]
        return (self.run(filled) or 0.0) / self.usual


def halves(count: int, run: RunOver, seed: int = 0) -> Outcome:
    """Slow hosts among `count`, by halving groups that are slow.

    The upper quartile of the first groups counts as usual, so at least a quarter of them must be without a slow host. ValueError for fewer
    than four hosts.
    """
    if count < 4:
        raise ValueError("halving needs four hosts or more")
    search = _Search(run, random.Random(seed))
    order = list(range(count))
    search.draw.shuffle(order)
    many = max(2, min(GROUPS, count // 2))
    groups = [order[at::many] for at in range(many)]
    search.size = max(map(len, groups))
    rates = [run(group) or 0.0 for group in groups]
    search.usual = nearest_rank(sorted(rates), 75)
    if not search.usual:
        return Outcome((), None)
    search.fast = [host for group, rate in zip(groups, rates, strict=True) if rate >= SLOW * search.usual for host in group]
    slow = [group for group, rate in zip(groups, rates, strict=True) if rate < SLOW * search.usual]
    suspected = [one for group in slow if search.share(group) < SLOW for one in _inside(search, group)]
    found = [Found(tuple(one), _confirmed(search, one)) for one in suspected]
    return Outcome(tuple(one for one in found if one.share is None or one.share < SLOW), search.usual)


def _inside(search: _Search, group: Sequence[int]) -> list[list[int]]:
    """The slow hosts of a slow group; two hosts if each half of it is fast without the other."""
    if len(group) == 1:
        return [list(group)]
    parts = list(group[: len(group) // 2]), list(group[len(group) // 2 :])
    slow = [part for part in parts if search.share(part) < SLOW]
    if slow:
        found = [one for part in slow for one in _inside(search, part)]
        for part in parts:
            if part not in slow:
                search.fast.extend(host for host in part if host not in search.fast)
        return found
    return [_together(search, *parts)]


def _together(search: _Search, first: list[int], second: list[int]) -> list[int]:
    """One host of each part that are slow only together."""
    for part, other in ((first, second), (second, first)):
        while len(part) > 1:
            half = part[: len(part) // 2]
            keep = half if search.share([*half, *other]) < SLOW else part[len(part) // 2 :]
            part[:] = keep
    return sorted(first + second)


def _confirmed(search: _Search, group: Sequence[int]) -> float | None:
    """The median of runs with other random peers; None if most of them failed."""
    return statistics.median(search.share(group) for _ in range(CONFIRMATIONS)) or None


def pairs(count: int, run: RunOver, most_rounds: int = 0, seed: int = 0) -> Outcome:
    """Slow hosts, slow pairs and pairs that failed, from runs over two hosts each.

    count * (count - 1) / 2 runs; with `most_rounds` at most count / 2 for each round.
    """
    flows: list[Measured] = []
    failed: list[Found] = []
    for pair in (pair for together in rounds(count, most_rounds, seed) for pair in together):
        rate = run(pair)
        if rate is None:
            failed.append(Found(pair, None))
        else:
            a, b = pair
            flows += [Measured(a, b, rate), Measured(b, a, rate)]
    solved = solve(flows)
    if solved.usual is None:
        return Outcome(tuple(failed), None)
    levels = {(one.end.host,): one.rate for one in solved.ends}
    both = {(min(one[:2]), max(one[:2])): one.rate for one in solved.pairs}
    slow = (Found(hosts, rate / solved.usual) for hosts, rate in (levels | both).items())
    return Outcome((*slow, *failed), solved.usual)
