"""Finds slow hosts, or two that are slow only together, with a few runs of a collective over
subsets of the hosts.

A collective is as fast as its slowest host. Groups of equal size are compared, since the rate may
depend on the number of hosts. `halves` needs the fewest runs, but sees a slow pair only inside one
of its first groups. `pairs` runs every two hosts and assumes nothing. Both only suspect at first.

`compare` decides, by repeated runs over the suspects in turn with runs over others. One run says
little: on a busy machine two runs over the same hosts differ by a fifth. Runs in turn share what
disturbs the machine, and a rank test (Mann and Whitney) of them assumes no distribution.
"""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from busbw.link.schedule import rounds
from busbw.link.slow_endpoints import PairRate, solve
from busbw.stats.intervals import nearest_rank
from busbw.stats.rank_tests import p_higher

# Runs a collective over these hosts and returns its rate; None if it failed.
RunOver = Callable[[Sequence[int]], float | None]
SLOW_SHARE = 0.85  # of the usual rate: hosts below that are slow
RUNS_PER_GROUP = 3  # runs of each of the groups whose spread is judged
# After so many runs of either side a comparison ends if they show no difference, or if all runs of
# the suspects failed, which takes long.
FIRST_RUNS = 3
# After so many runs of either side a difference is tested: that 6 runs are all slower than 6 others
# has a chance of 1 in 924.
LATER_RUNS = (6, 9)
FALSE_ALARM_CHANCE = 0.01  # that any of several equal suspects is called slow at one test
# The largest typical difference between two runs over the same hosts: above it, a host at
# SLOW_SHARE would not be noticed.
MAX_SPREAD = (1 - SLOW_SHARE) / 2
MAX_GROUPS = 8  # of the first step, and pairs whose spread is measured


@dataclass(frozen=True, slots=True)
class SuspectComparison:
    """A comparison of suspects with other hosts.

    `share` is the median rate relative to that of the others, 0 if the runs failed. `slow` is None
    if the runs leave it open.
    """

    share: float
    slow: bool | None


def compare(
    run: RunOver,
    suspects: Callable[[], Sequence[int]],
    others: Callable[[], Sequence[int]],
    suspect_count: int = 1,
) -> SuspectComparison:
    """Runs over hosts with a suspect and runs over others in turn, until they differ beyond chance,
    or clearly do not.

    `suspects` and `others` return the hosts of the next run. `suspect_count` is the number of
    suspects that are compared; FALSE_ALARM_CHANCE is divided by it, so that it holds for all of
    them together (Bonferroni).
    """
    slower: list[float] = []
    usual: list[float] = []
    share = 1.0
    for runs in (FIRST_RUNS, *LATER_RUNS):
        while len(slower) < runs:
            slower.append(run(suspects()) or 0.0)
            usual.append(run(others()) or 0.0)
        reference = statistics.median(usual)
        share = statistics.median(slower) / reference if reference else 1.0
        if runs == FIRST_RUNS and all(usual) and not any(slower):
            return SuspectComparison(0.0, slow=True)
        if share > (1 + SLOW_SHARE) / 2:
            return SuspectComparison(share, slow=False)
        if (
            share < SLOW_SHARE
            and p_higher(sorted(slower), sorted(usual)) <= FALSE_ALARM_CHANCE / suspect_count
        ):
            return SuspectComparison(share, slow=True)
    return SuspectComparison(share, slow=None if share < SLOW_SHARE else False)


def spread(groups: Sequence[Sequence[float]]) -> float | None:
    """The typical relative difference of two runs on the same hosts; None if too few succeeded."""
    pairs = [pair for rates in groups for pair in itertools.combinations(rates, 2) if all(pair)]
    differences = [math.expm1(abs(math.log(a / b))) for a, b in pairs]
    return statistics.median(differences) if differences else None


@dataclass(frozen=True, slots=True)
class SlowHosts:
    """A slow host, or two that are slow only together.

    `share` is their share of the usual rate; None if their runs failed.
    """

    hosts: tuple[int, ...]
    share: float | None


@dataclass(frozen=True, slots=True)
class UndecidedHosts:
    """Hosts that were slow in some runs, but not beyond chance. `share` is as in
    `SlowHosts`.
    """

    hosts: tuple[int, ...]
    share: float


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What a search found, and what it left open; `usual` is None if too few runs succeeded to know
    it.

    `spread` is how much two runs over the same hosts typically differ, as a fraction of the slower
    one; None if unknown.
    """

    found: tuple[SlowHosts, ...]
    usual: float | None
    left_open: tuple[UndecidedHosts, ...] = ()
    spread: float | None = None

    @property
    def noisy(self) -> bool:
        """Whether the runs differ so much that a slow host may have been missed."""
        return self.spread is None or self.spread > MAX_SPREAD


@dataclass
class _SearchRuns:
    """The runs of one search, and what they show."""

    run: RunOver
    draw: random.Random
    size: int = 2
    usual: float = 0.0
    fast: list[int] = field(default_factory=list)
    confirmed: list[SlowHosts] = field(default_factory=list)
    left_open: list[UndecidedHosts] = field(default_factory=list)

    def filled(self, group: Sequence[int], without: Sequence[int] = ()) -> list[int]:
        """The group, filled up to the common size with fast hosts other than those in `without`."""
        others = [host for host in self.fast if host not in (*group, *without)]
        missing = max(0, self.size - len(group))
        return [*group, *self.draw.sample(others, min(missing, len(others)))]

    def share(self, group: Sequence[int]) -> float:
        """The rate of a run over a filled-up group as a share of the usual rate; 0 if it failed."""
        return (self.run(self.filled(group)) or 0.0) / self.usual

    def decide(self, group: Sequence[int], suspect_count: int) -> None:
        """Compare a suspect with others by repeated runs, and note the result.

        `group` is one host, or two that may be slow only together. One host is compared with fast
        hosts. Two hosts are compared with fast hosts and either of the two in turn: they are slow
        together only if both are fast without each other.
        """
        hosts = tuple(sorted(group))
        turns = itertools.cycle([()] if len(hosts) == 1 else [(host,) for host in hosts])
        comparison = compare(
            self.run,
            lambda: self.filled(hosts),
            lambda: self.filled(next(turns), without=hosts),
            suspect_count,
        )
        if comparison.slow:
            self.confirmed.append(SlowHosts(hosts, comparison.share or None))
        elif comparison.slow is None:
            self.left_open.append(UndecidedHosts(hosts, comparison.share))

    def outcome(self, repeated: Sequence[Sequence[float]]) -> SearchOutcome:
        """The outcome, with the spread of groups that were run repeatedly.

        Hosts that are slower by less than the spread are left open.
        """
        typical = spread(repeated)
        confirmed = []
        left_open = list(self.left_open)
        for slow in self.confirmed:
            if slow.share is not None and typical is not None and 1 - slow.share <= typical:
                left_open.append(UndecidedHosts(slow.hosts, slow.share))
            else:
                confirmed.append(slow)
        return SearchOutcome(tuple(confirmed), self.usual, tuple(left_open), typical)


def halves(count: int, run: RunOver, seed: int = 0) -> SearchOutcome:
    """Slow hosts among `count`, by halving groups that are slow.

    The upper quartile of the first groups counts as usual, so at least a quarter of them must be
    without a slow host. ValueError for fewer than four hosts.
    """
    if count < 4:
        raise ValueError("halving needs four hosts or more")
    search = _SearchRuns(run, random.Random(seed))
    order = list(range(count))
    search.draw.shuffle(order)
    group_count = max(2, min(MAX_GROUPS, count // 2))
    groups = [tuple(order[at::group_count]) for at in range(group_count)]
    search.size = max(map(len, groups))
    rates = _run_in_turn(search, groups)
    medians = {group: statistics.median(group_rates) for group, group_rates in rates.items()}
    search.usual = nearest_rank(sorted(medians.values()), 75)
    if not search.usual:
        return SearchOutcome((), None)
    search.fast = [
        host for group in groups if medians[group] >= SLOW_SHARE * search.usual for host in group
    ]
    slow = [group for group in groups if medians[group] < SLOW_SHARE * search.usual]
    suspects = [suspect for group in slow for suspect in _find_suspects(search, group)]
    for suspect in suspects:
        search.decide(suspect, len(suspects))
    return search.outcome(list(rates.values()))


def _run_in_turn(
    search: _SearchRuns, groups: Sequence[tuple[int, ...]]
) -> dict[tuple[int, ...], list[float]]:
    """The rates of RUNS_PER_GROUP runs over each group, in a new order each time.

    A failed run, with rate 0, is the group's last.
    """
    rates: dict[tuple[int, ...], list[float]] = {group: [] for group in groups}
    for _ in range(RUNS_PER_GROUP):
        for group in search.draw.sample(list(groups), len(groups)):
            if all(rates[group]):
                rates[group].append(search.run(group) or 0.0)
    return rates


def _find_suspects(search: _SearchRuns, group: Sequence[int]) -> list[list[int]]:
    """The suspects in a slow group: hosts that one run each shows as slow, or two hosts if each
    half of the group is fast without the other.
    """
    if len(group) == 1:
        return [list(group)]
    parts = list(group[: len(group) // 2]), list(group[len(group) // 2 :])
    slow = [part for part in parts if search.share(part) < SLOW_SHARE]
    if slow:
        suspects = [suspect for part in slow for suspect in _find_suspects(search, part)]
        for part in parts:
            if part not in slow:
                search.fast.extend(host for host in part if host not in search.fast)
        return suspects
    return [_narrow_to_pair(search, *parts)]


def _narrow_to_pair(search: _SearchRuns, first: list[int], second: list[int]) -> list[int]:
    """One host of each part that are slow only together."""
    for part, other in ((first, second), (second, first)):
        while len(part) > 1:
            half = part[: len(part) // 2]
            keep = half if search.share([*half, *other]) < SLOW_SHARE else part[len(part) // 2 :]
            part[:] = keep
    return sorted(first + second)


def pairs(count: int, run: RunOver, most_rounds: int = 0, seed: int = 0) -> SearchOutcome:
    """Slow hosts, slow pairs and pairs that failed, from runs over two hosts each.

    count * (count - 1) / 2 runs, with `most_rounds` at most count / 2 for each round; then those
    that repeat suspects and a few others.
    """
    search = _SearchRuns(run, random.Random(seed))
    all_rounds = rounds(count, most_rounds, seed)
    rates = {pair: run(pair) for together in all_rounds for pair in together}
    measured = []
    for (a, b), rate in rates.items():
        if rate is not None:
            measured += [PairRate(a, b, rate), PairRate(b, a, rate)]
    solved = solve(measured)
    failed = [pair for pair, rate in rates.items() if rate is None]
    if solved.usual is None:
        return SearchOutcome(tuple(SlowHosts(pair, None) for pair in failed), None)
    search.usual = solved.usual
    accused = list(dict.fromkeys(level.end.host for level in solved.ends))
    search.fast = [host for host in range(count) if host not in accused]
    repeated = all_rounds[0][:MAX_GROUPS]
    repeated_rates = {pair: [rates[pair] or 0.0] for pair in repeated}
    for _ in range(RUNS_PER_GROUP - 1):
        for pair in search.draw.sample(repeated, len(repeated)):
            repeated_rates[pair].append(run(pair) or 0.0)
    slow_pairs = dict.fromkeys((min(pair[:2]), max(pair[:2])) for pair in solved.pairs)
    suspect_count = len(accused) + len(slow_pairs)
    for host in accused:
        search.decide([host], suspect_count)
    for pair in slow_pairs:
        search.decide(pair, suspect_count)
    search.confirmed += [SlowHosts(pair, None) for pair in failed]
    return search.outcome(list(repeated_rates.values()))
