"""Precise timing of a cell: samples of every rank until the median is known as closely as asked, or it is clear that it will not be."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from busbw.core.intervals import median, quantile_interval
from busbw.core.result import Cell
from busbw.core.sampling import TAIL, Verdict, first, judge, stated
from busbw.core.statistics import nearest_rank
from busbw.core.sweep import Sampling
from busbw.engines.base import Control, Launch
from busbw.measure.batches import Batches

LATE_PERCENT = 25  # the lower quartile: a rank that is late always is at any quantile, one that the scheduler put aside is not at a low one
DIGITS = 10  # of a kept sample: 0.1 ns
SMALLEST_TIME_S = 1e-9  # a clock that saw nothing pass must not divide by zero


@dataclass(slots=True)
class Measured:
    """A cell's samples in seconds, over all ranks: longest_s from the first rank's start to the last one's end, shortest_s the smallest
    duration, late_s[r] each rank's lateness in every operation; launch_s the host's time to enqueue one (the slowest process' median).
    """

    longest_s: list[float] = field(default_factory=list)
    shortest_s: list[float] = field(default_factory=list)
    late_s: list[list[float]] = field(default_factory=list)
    launch_s: float | None = None
    verdict: Verdict = field(default_factory=Verdict)


def run(batches: Batches, control: Control, launches: Sequence[Launch], sampling: Sampling, usual_s: float) -> Measured | None:
    """Sample `launches` in turn (one per buffer position); the same number on all processes. Process 0 gets the answer, others None.

    `usual_s` is about how long one takes, the same on all processes.
    """
    seen, launch_s = Measured(), []
    start = time.perf_counter()
    turn = itertools.cycle(launches)
    more = first(sampling)
    while more:
        taken = batches.take(list(itertools.islice(turn, more)), usual_s)
        launch_s += taken.launch_s
        every = control.gather((taken.durations_s, taken.late_s))
        if every is not None:
            _add(seen, [one for durations, _ in every for one in durations], [one for _, late in every for one in late])
            seen.verdict = judge(seen.longest_s, sampling, time.perf_counter() - start)
            usual_s = median(sorted(seen.longest_s))
        more, usual_s = control.bcast((seen.verdict.more, usual_s))
    costs = control.gather(median(sorted(launch_s)) if launch_s else None)
    if costs is None:
        return None
    seen.launch_s = max((cost for cost in costs if cost is not None), default=None)
    return seen


def cell(seen: Measured, sampling: Sampling, operations: int) -> Cell:
    """The cell without its bandwidths; every sample is of `operations` operations in one group."""
    kept = seen.verdict.dropped
    made = Cell(_each(median(sorted(seen.longest_s[kept:])), operations), 0.0, 0.0)
    made.samples_s = [_each(value, operations) for value in seen.longest_s]
    made.dropped, made.stopped, made.modes_s = kept, seen.verdict.stopped, seen.verdict.modes_s
    found = stated(seen.longest_s[kept:], sampling.confidence)
    made.low_s, made.high_s = (_each(found[0], operations), _each(found[1], operations)) if found else (None, None)
    made.op_s = _each(median(sorted(seen.shortest_s[kept:])), operations)
    made.launch_s = None if seen.launch_s is None else _each(seen.launch_s, operations)
    made.late_s = [round(nearest_rank(sorted(late[kept:]), LATE_PERCENT), DIGITS) for late in seen.late_s]
    if sampling.tail:
        made.p99_s = _each(nearest_rank(sorted(seen.longest_s[kept:]), round(100 * TAIL)), operations)
        bounds = quantile_interval(seen.longest_s[kept:], TAIL, sampling.confidence)
        made.p99_low_s, made.p99_high_s = (_each(bounds[0], operations), _each(bounds[1], operations)) if bounds else (None, None)
    return made


def _each(seconds: float, operations: int) -> float:
    return max(round(seconds / operations, DIGITS), SMALLEST_TIME_S)


def _add(seen: Measured, durations: list[list[float]], late: list[list[float]]) -> None:
    """One batch of all ranks. Without a common clock a rank is late by what it was quicker than the longest: others waited for it."""
    spans = [[wait + own for wait, own in zip(*pair, strict=True)] for pair in zip(late, durations, strict=True)] if late else durations
    longest = [max(values) for values in zip(*spans, strict=True)]
    late = late or [[most - own for most, own in zip(longest, one, strict=True)] for one in durations]
    seen.longest_s += [round(value, DIGITS) for value in longest]
    seen.shortest_s += [round(min(values), DIGITS) for values in zip(*durations, strict=True)]
    seen.late_s = [before + now for before, now in zip(seen.late_s or [[] for _ in late], late, strict=True)]
