"""Precise timing of a cell: visits, each with samples of every rank.

Visits end when the median is known as closely as requested, or when more of them will not help. The
runner measures other cells between the visits.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from busbw.core.result import Cell, parts
from busbw.core.sweep import Sampling
from busbw.engines.base import Launch
from busbw.launch.control import Control
from busbw.measure.batches import Batches
from busbw.measure.plan import BandwidthFactors
from busbw.stats.intervals import nearest_rank, quantile_interval
from busbw.stats.sampling import (
    TAIL_QUANTILE,
    THROTTLED_TAKES,
    Decision,
    next_step,
    reported_interval,
)

# A rank's lateness is this percentile, the lower quartile: it is high for a rank that is always
# late, and low for one that the scheduler delayed now and then.
LATE_PERCENT = 25
UNFINISHED = "interrupted"  # the run ended before the last visit
# The expected time of an operation is this percentile of the samples: time slots that fit delayed
# operations let ranks sleep, and so delay them again.
UNDISTURBED_PERCENT = 25
TIME_DIGITS = 10  # of a stored time: 0.1 ns
SMALLEST_TIME_S = 1e-9  # a measured 0 would make bandwidths infinite


@dataclass(slots=True)
class CellSamples:
    """A cell's samples in seconds."""

    # from the first rank's start to the last rank's end
    longest_s: list[float] = field(default_factory=list)
    # the smallest duration over the ranks, of the slowest group
    shortest_s: list[float] = field(default_factory=list)
    late_s: list[list[float]] = field(default_factory=list)  # by rank: how late it started
    # by rank: from the first rank's start to its end
    ends_s: list[list[float]] = field(default_factory=list)
    # each process' median time to enqueue one operation
    launches_s: list[float] = field(default_factory=list)
    visits: list[int] = field(default_factory=list)  # the number of samples of each visit
    decision: Decision = field(default_factory=Decision)
    tick_s: float = 0.0
    throttled: bool = False  # a GPU was slowed down during some of the samples

    def by_visit(self) -> list[list[float]]:
        """The longest durations of each visit."""
        return parts(self.longest_s, self.visits)


@dataclass(slots=True)
class CellVisits:
    """A cell between its visits: the same on all processes, but only process 0 fills `measured`."""

    turn: Iterator[Launch]  # a launch for each buffer position
    more: int  # samples of the next visit; 0 if there is none
    estimate_s: float  # expected time of one operation
    measured: CellSamples = field(default_factory=CellSamples)
    launch_s: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    visited: int = 0  # number of visits so far


def visit(
    state: CellVisits,
    batches: Batches,
    control: Control,
    sampling: Sampling,
    throttled: Callable[[], bool],
    group_id: int,
    *,
    local: bool = False,
) -> None:
    """Take the samples of one visit on all processes, and decide whether another one follows.

    `throttled` says on all processes whether heat or a power limit has slowed down a GPU since it
    was last asked: the samples are then taken again once or twice. `group_id` numbers groups that
    do not wait for each other. `local`: an operation waits for no other rank, so how late a rank
    starts does not count.
    """
    start = time.perf_counter()
    measured = state.measured
    for _ in range(THROTTLED_TAKES):
        taken = batches.take(list(itertools.islice(state.turn, state.more)), state.estimate_s)
        disturbed = throttled()
        if not disturbed:
            break
    state.visited += 1
    state.launch_s += taken.launch_s
    late_s = [] if local else taken.late_s
    batch = control.gather((group_id, taken.durations_s, late_s))
    if batch is not None:
        _add(measured, batch)
        measured.throttled |= disturbed
        state.spent_s += time.perf_counter() - start
        measured.decision = next_step(measured.by_visit(), sampling, state.spent_s, measured.tick_s)
        state.more = measured.decision.more
        state.estimate_s = nearest_rank(sorted(measured.longest_s), UNDISTURBED_PERCENT)
    state.more, state.estimate_s = control.bcast((state.more, state.estimate_s))


def finish(state: CellVisits, control: Control) -> CellSamples | None:
    """Gather what each process measured of launches; returns all of the cell on process 0."""
    costs = control.gather(median(state.launch_s) if state.launch_s else None)
    if costs is None:
        return None
    state.measured.launches_s = [cost for cost in costs if cost is not None]
    return state.measured


def cell(
    measured: CellSamples,
    sampling: Sampling,
    operations: int,
    rates: BandwidthFactors,
    *,
    synchronizes: bool = True,
    host_timed: bool = False,
    uneven: bool = False,
) -> Cell:
    """The cell of these samples. Each sample is of `operations` operations in one group, and the
    cell's times are per operation.

    `synchronizes`: no rank ends before all have started. `host_timed`: starts were read from a
    common clock. `uneven`: the ranks move different amounts, so that their ends matter.
    """
    decision = measured.decision
    dropped = sum(measured.visits[: decision.dropped])
    kept = measured.longest_s[dropped:]
    cell = rates.cell(_per_operation(median(kept), operations))
    cell.n = len(kept)
    cell.samples_s = [_per_operation(sample, operations) for sample in measured.longest_s]
    cell.dropped = dropped
    cell.stopped = "unstable" if measured.throttled else decision.stopped or UNFINISHED
    cell.visits = list(measured.visits)
    kept_visits = measured.by_visit()[decision.dropped :]
    interval = reported_interval(kept_visits, sampling.confidence, measured.tick_s)
    cell.low_s, cell.high_s = _pair_per_operation(interval, operations) or (None, None)
    cell.modes_s = _pair_per_operation(decision.modes_s, operations)
    cell.tick_s = round(measured.tick_s / operations, TIME_DIGITS) or None
    cell.launches_s = [_per_operation(cost, operations) for cost in measured.launches_s] or None
    cell.launch_s = max(cell.launches_s) if cell.launches_s else None
    if synchronizes:
        cell.op_s = _per_operation(median(measured.shortest_s[dropped:]), operations)
    if synchronizes or host_timed:
        kept_late = [late[dropped:] for late in measured.late_s]
        latest_starts = [max(late) for late in zip(*kept_late, strict=True)]
        cell.skew_s = round(median(latest_starts), TIME_DIGITS)
        cell.late_s = [
            round(nearest_rank(sorted(late), LATE_PERCENT), TIME_DIGITS) for late in kept_late
        ]
    if uneven:
        kept_ends = [ends[dropped:] for ends in measured.ends_s]
        cell.ends_s = [_per_operation(median(ends), operations) for ends in kept_ends]
    if sampling.tail:
        cell.p99_s = _per_operation(
            nearest_rank(sorted(kept), round(100 * TAIL_QUANTILE)), operations
        )
        bounds = quantile_interval(kept, TAIL_QUANTILE, sampling.confidence)
        cell.p99_low_s, cell.p99_high_s = _pair_per_operation(bounds, operations) or (None, None)
    return cell


def _per_operation(seconds: float, operations: int) -> float:
    return max(round(seconds / operations, TIME_DIGITS), SMALLEST_TIME_S)


def _pair_per_operation(
    pair: tuple[float, float] | None, operations: int
) -> tuple[float, float] | None:
    if pair is None:
        return None
    low, high = pair
    return _per_operation(low, operations), _per_operation(high, operations)


def _add(
    measured: CellSamples, batch: Sequence[tuple[int, list[list[float]], list[list[float]]]]
) -> None:
    """Add one batch: each process' group_id, and the durations and lateness of its ranks.

    Without a common clock, a rank's lateness is the longest duration in its group minus its own:
    the other ranks waited for it.
    """
    ends_by_group: dict[int, list[list[float]]] = {}
    durations_by_group: dict[int, list[list[float]]] = {}
    ends_s: list[list[float]] = []
    for group_id, durations, late in batch:
        ends = _sums(late, durations) if late else durations
        ends_s += ends
        ends_by_group.setdefault(group_id, []).extend(ends)
        durations_by_group.setdefault(group_id, []).extend(durations)
    longest = {group_id: _largest(ranks) for group_id, ranks in ends_by_group.items()}
    shortest = [_smallest(ranks) for ranks in durations_by_group.values()]
    late_s: list[list[float]] = []
    for group_id, durations, late in batch:
        late_s += late or [_differences(longest[group_id], times) for times in durations]
    samples = [round(value, TIME_DIGITS) for value in _largest(longest.values())]
    measured.longest_s += samples
    measured.visits.append(len(samples))
    measured.shortest_s += [round(value, TIME_DIGITS) for value in _largest(shortest)]
    measured.late_s = _extended(measured.late_s, late_s)
    measured.ends_s = _extended(measured.ends_s, ends_s)


def _largest(ranks: Iterable[list[float]]) -> list[float]:
    return [max(values) for values in zip(*ranks, strict=True)]


def _smallest(ranks: Iterable[list[float]]) -> list[float]:
    return [min(values) for values in zip(*ranks, strict=True)]


def _sums(late: list[list[float]], durations: list[list[float]]) -> list[list[float]]:
    """Lateness plus duration, of each operation on each rank."""
    sums = []
    for waits, times in zip(late, durations, strict=True):
        sums.append([wait + duration for wait, duration in zip(waits, times, strict=True)])
    return sums


def _differences(longest: list[float], times: list[float]) -> list[float]:
    return [largest - duration for largest, duration in zip(longest, times, strict=True)]


def _extended(by_rank: list[list[float]], added: list[list[float]]) -> list[list[float]]:
    """Each rank's values with those of a new batch; `by_rank` is empty before the first."""
    if not by_rank:
        return added
    return [before + now for before, now in zip(by_rank, added, strict=True)]
