"""Precise timing of a cell: samples of every rank until the median is known as closely as asked, or it is clear that it will not be."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from busbw.core.result import Cell
from busbw.core.sweep import Sampling
from busbw.engines.base import Launch
from busbw.launch.control import Control
from busbw.measure.batches import Batches
from busbw.stats.intervals import median, quantile_interval
from busbw.stats.sampling import TAIL, Verdict, first, judge, stated
from busbw.stats.summary import nearest_rank

LATE_PERCENT = 25  # the lower quartile: a rank that is late always is at any quantile, one that the scheduler put aside is not at a low one
DIGITS = 10  # of a kept sample: 0.1 ns
SMALLEST_TIME_S = 1e-9  # a clock that saw nothing pass must not divide by zero


@dataclass(slots=True)
class Measured:
    """A cell's samples in seconds: longest_s from the first rank's start to the last one's end, over all ranks; shortest_s the smallest
    duration (of the slowest group, where there are several); late_s[r] each rank's lateness in every operation; launches_s each
    process' median time to enqueue one, [] where launches complete operations.
    """

    longest_s: list[float] = field(default_factory=list)
    shortest_s: list[float] = field(default_factory=list)
    late_s: list[list[float]] = field(default_factory=list)
    launches_s: list[float] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    tick_s: float = 0.0


def run(
    batches: Batches, control: Control, launches: Sequence[Launch], sampling: Sampling, usual_s: float, team: int = 0
) -> Measured | None:
    """Sample `launches` in turn (one per buffer position); the same number on all processes. Process 0 gets the answer, others None.

    `usual_s` is about how long one takes, the same on all processes; `team` tells groups apart that do not wait for each other.
    """
    seen, launch_s = Measured(tick_s=batches.tick_s), []
    start = time.perf_counter()
    turn = itertools.cycle(launches)
    more = first(sampling)
    while more:
        taken = batches.take(list(itertools.islice(turn, more)), usual_s)
        launch_s += taken.launch_s
        every = control.gather((team, taken.durations_s, taken.late_s))
        if every is not None:
            _add(seen, every)
            seen.verdict = judge(seen.longest_s, sampling, time.perf_counter() - start, seen.tick_s)
            usual_s = median(sorted(seen.longest_s))
        more, usual_s = control.bcast((seen.verdict.more, usual_s))
    costs = control.gather(median(sorted(launch_s)) if launch_s else None)
    if costs is None:
        return None
    seen.launches_s = [cost for cost in costs if cost is not None]
    return seen


def cell(seen: Measured, sampling: Sampling, operations: int, *, joined: bool = True, clocked: bool = False) -> Cell:
    """The cell without its bandwidths; every sample is of `operations` operations in one group.

    `joined` where no rank ends before all have begun, `clocked` where starts were read from a common clock.
    """
    kept = seen.verdict.dropped
    made = Cell(_each(median(sorted(seen.longest_s[kept:])), operations), 0.0, 0.0)
    made.samples_s = [_each(value, operations) for value in seen.longest_s]
    made.dropped, made.stopped, made.modes_s = kept, seen.verdict.stopped, seen.verdict.modes_s
    found = stated(seen.longest_s[kept:], sampling.confidence, seen.tick_s)
    made.low_s, made.high_s = (_each(found[0], operations), _each(found[1], operations)) if found else (None, None)
    made.tick_s = round(seen.tick_s / operations, DIGITS) or None
    made.launches_s = [_each(cost, operations) for cost in seen.launches_s] or None
    made.launch_s = max(made.launches_s) if made.launches_s else None
    if joined:
        made.op_s = _each(median(sorted(seen.shortest_s[kept:])), operations)
    if joined or clocked:
        starts = [max(late) for late in zip(*(late[kept:] for late in seen.late_s), strict=True)]
        made.skew_s = round(median(sorted(starts)), DIGITS)
        made.late_s = [round(nearest_rank(sorted(late[kept:]), LATE_PERCENT), DIGITS) for late in seen.late_s]
    if sampling.tail:
        made.p99_s = _each(nearest_rank(sorted(seen.longest_s[kept:]), round(100 * TAIL)), operations)
        bounds = quantile_interval(seen.longest_s[kept:], TAIL, sampling.confidence)
        made.p99_low_s, made.p99_high_s = (_each(bounds[0], operations), _each(bounds[1], operations)) if bounds else (None, None)
    return made


def _each(seconds: float, operations: int) -> float:
    return max(round(seconds / operations, DIGITS), SMALLEST_TIME_S)


def _add(seen: Measured, every: Sequence[tuple[int, list[list[float]], list[list[float]]]]) -> None:
    """One batch of all processes: team, durations and lateness of their ranks.

    Without a common clock a rank is late by what it was quicker than the longest of its team: the others waited for it.
    """
    spans: dict[int, list[list[float]]] = {}
    own: dict[int, list[list[float]]] = {}
    for team, durations, late in every:
        spans.setdefault(team, []).extend(_sums(late, durations) if late else durations)
        own.setdefault(team, []).extend(durations)
    longest = {team: [max(values) for values in zip(*ranks, strict=True)] for team, ranks in spans.items()}
    shortest = [[min(values) for values in zip(*ranks, strict=True)] for ranks in own.values()]
    lateness = []
    for team, durations, late in every:
        lateness += late or [[most - one for most, one in zip(longest[team], times, strict=True)] for times in durations]
    seen.longest_s += [round(max(values), DIGITS) for values in zip(*longest.values(), strict=True)]
    seen.shortest_s += [round(max(values), DIGITS) for values in zip(*shortest, strict=True)]
    seen.late_s = [before + now for before, now in zip(seen.late_s or [[] for _ in lateness], lateness, strict=True)]


def _sums(late: list[list[float]], durations: list[list[float]]) -> list[list[float]]:
    return [[wait + own for wait, own in zip(*pair, strict=True)] for pair in zip(late, durations, strict=True)]
