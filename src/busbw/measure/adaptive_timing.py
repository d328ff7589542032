"""Precise timing of a cell: visits, each with samples of every rank, until the median is known as
closely as requested, or more of them will not help.

The runner measures other cells between the visits.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from busbw.core.result import Cell, parts
from busbw.core.sweep import Sampling
from busbw.engines.base import Launch
from busbw.launch.control import Control
from busbw.measure.batches import Batches
from busbw.measure.plan import Rates
from busbw.stats.intervals import nearest_rank, quantile_interval
from busbw.stats.sampling import TAIL, THROTTLED_TAKES, Decision, next_step, reported_interval

# lower quartile: high for a rank that is always late, low for one that the scheduler delayed now
# and then
LATE_PERCENT = 25
UNFINISHED = "interrupted"  # the run ended before the last visit
# of the samples: slots of a clock that fit delayed operations let ranks sleep, and so delay them
# again
UNDISTURBED_PERCENT = 25
DIGITS = 10  # of a stored time: 0.1 ns
SMALLEST_TIME_S = 1e-9  # a measured 0 would make bandwidths infinite


@dataclass(slots=True)
class Measured:
    """A cell's samples in seconds.

    longest_s: from the first rank's start to the last rank's end. shortest_s: the smallest duration
    over the ranks, of the slowest group. late_s[r]: how late rank r started. ends_s[r]: from the
    first rank's start to the end of rank r. launches_s: each process' median time to enqueue one
    operation. visits[k]: the number of samples of visit k. throttled: some are of a GPU that was
    slowed down.
    """

    longest_s: list[float] = field(default_factory=list)
    shortest_s: list[float] = field(default_factory=list)
    late_s: list[list[float]] = field(default_factory=list)
    ends_s: list[list[float]] = field(default_factory=list)
    launches_s: list[float] = field(default_factory=list)
    visits: list[int] = field(default_factory=list)
    decision: Decision = field(default_factory=Decision)
    tick_s: float = 0.0
    throttled: bool = False

    def by_visit(self) -> list[list[float]]:
        """The longest durations of each visit."""
        return parts(self.longest_s, self.visits)


@dataclass(slots=True)
class Visiting:
    """A cell between its visits, the same on all processes but for `seen`, which process 0 fills.

    `turn` has a launch for each buffer position; `visited` counts its visits, and `more` is the
    number of samples of the next one, 0 if there is none; `estimate_s` is the expected time of one
    operation.
    """

    turn: Iterator[Launch]
    more: int
    estimate_s: float
    seen: Measured = field(default_factory=Measured)
    launch_s: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    visited: int = 0


def visit(
    state: Visiting,
    batches: Batches,
    control: Control,
    sampling: Sampling,
    throttled: Callable[[], bool],
    group_id: int,
) -> None:
    """Take the samples of one visit on all processes, and decide whether another one follows.

    `throttled` says on all processes whether heat or a power limit has slowed down a GPU since it
    was last asked: the samples are then taken again once or twice. `group_id` numbers groups that
    do not wait for each other.
    """
    start, seen = time.perf_counter(), state.seen
    for _ in range(THROTTLED_TAKES):
        taken = batches.take(list(itertools.islice(state.turn, state.more)), state.estimate_s)
        disturbed = throttled()
        if not disturbed:
            break
    state.visited += 1
    state.launch_s += taken.launch_s
    every = control.gather((group_id, taken.durations_s, taken.late_s))
    if every is not None:
        _add(seen, every)
        seen.throttled |= disturbed
        state.spent_s += time.perf_counter() - start
        seen.decision = next_step(seen.by_visit(), sampling, state.spent_s, seen.tick_s)
        state.more, state.estimate_s = (
            seen.decision.more,
            nearest_rank(sorted(seen.longest_s), UNDISTURBED_PERCENT),
        )
    state.more, state.estimate_s = control.bcast((state.more, state.estimate_s))


def finish(state: Visiting, control: Control) -> Measured | None:
    """What was measured, on process 0."""
    costs = control.gather(median(state.launch_s) if state.launch_s else None)
    if costs is None:
        return None
    state.seen.launches_s = [cost for cost in costs if cost is not None]
    return state.seen


def cell(
    seen: Measured,
    sampling: Sampling,
    operations: int,
    rates: Rates,
    *,
    synchronizes: bool = True,
    host_timed: bool = False,
    uneven: bool = False,
) -> Cell:
    """The cell. Each sample is of `operations` operations in one group; times are per operation.

    `synchronizes`: no rank ends before all have started. `host_timed`: starts were read from a
    common clock. `uneven`: the ranks move different amounts, so that their ends matter.
    """
    dropped = sum(seen.visits[: seen.decision.dropped])
    kept = seen.longest_s[dropped:]
    made = rates.cell(_each(median(kept), operations))
    made.n = len(kept)
    made.samples_s = [_each(value, operations) for value in seen.longest_s]
    made.dropped, made.stopped = (
        dropped,
        ("unstable" if seen.throttled else seen.decision.stopped or UNFINISHED),
    )
    made.visits = list(seen.visits)
    found = reported_interval(
        seen.by_visit()[seen.decision.dropped :], sampling.confidence, seen.tick_s
    )
    made.low_s, made.high_s = _both(found, operations) or (None, None)
    made.modes_s = _both(seen.decision.modes_s, operations)
    made.tick_s = round(seen.tick_s / operations, DIGITS) or None
    made.launches_s = [_each(cost, operations) for cost in seen.launches_s] or None
    made.launch_s = max(made.launches_s) if made.launches_s else None
    if synchronizes:
        made.op_s = _each(median(seen.shortest_s[dropped:]), operations)
    if synchronizes or host_timed:
        starts = [max(late) for late in zip(*(late[dropped:] for late in seen.late_s), strict=True)]
        made.skew_s = round(median(starts), DIGITS)
        made.late_s = [
            round(nearest_rank(sorted(late[dropped:]), LATE_PERCENT), DIGITS)
            for late in seen.late_s
        ]
    if uneven:
        made.ends_s = [_each(median(ends[dropped:]), operations) for ends in seen.ends_s]
    if sampling.tail:
        made.p99_s = _each(nearest_rank(sorted(kept), round(100 * TAIL)), operations)
        bounds = quantile_interval(kept, TAIL, sampling.confidence)
        made.p99_low_s, made.p99_high_s = _both(bounds, operations) or (None, None)
    return made


def _each(seconds: float, operations: int) -> float:
    return max(round(seconds / operations, DIGITS), SMALLEST_TIME_S)


def _both(pair: tuple[float, float] | None, operations: int) -> tuple[float, float] | None:
    return (_each(pair[0], operations), _each(pair[1], operations)) if pair else None


def _add(seen: Measured, every: Sequence[tuple[int, list[list[float]], list[list[float]]]]) -> None:
    """Add one batch: each process' group_id, and the durations and lateness of its ranks.

    Without a common clock, a rank's lateness is the longest duration in its group_id minus its own:
    the other ranks waited for it.
    """
    spans: dict[int, list[list[float]]] = {}
    own: dict[int, list[list[float]]] = {}
    all_ends: list[list[float]] = []
    for group_id, durations, late in every:
        ends = (
            [
                [wait + one for wait, one in zip(*pair, strict=True)]
                for pair in zip(late, durations, strict=True)
            ]
            if late
            else durations
        )
        all_ends += ends
        spans.setdefault(group_id, []).extend(ends)
        own.setdefault(group_id, []).extend(durations)
    longest = {
        group_id: [max(values) for values in zip(*ranks, strict=True)]
        for group_id, ranks in spans.items()
    }
    shortest = [[min(values) for values in zip(*ranks, strict=True)] for ranks in own.values()]
    lateness = []
    for group_id, durations, late in every:
        lateness += late or [
            [most - one for most, one in zip(longest[group_id], times, strict=True)]
            for times in durations
        ]
    before = len(seen.longest_s)
    seen.longest_s += [round(max(values), DIGITS) for values in zip(*longest.values(), strict=True)]
    seen.visits.append(len(seen.longest_s) - before)
    seen.shortest_s += [round(max(values), DIGITS) for values in zip(*shortest, strict=True)]
    seen.late_s = [
        before + now
        for before, now in zip(seen.late_s or [[] for _ in lateness], lateness, strict=True)
    ]
    seen.ends_s = [
        before + now
        for before, now in zip(seen.ends_s or [[] for _ in all_ends], all_ends, strict=True)
    ]
