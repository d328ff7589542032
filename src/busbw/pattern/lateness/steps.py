"""Calls of all ranks of a job, and which of them begin a step."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from busbw.core.pattern_weights import step

MIN_STEPS = 5  # fewer cannot be compared
MAX_EQUAL_CALLS = 256  # of a step
REPEATED = 0.5  # of the difference from call to call is at most that from step to step
# When the steps of a rank began, and the last one ended, by the clock of its calls; [] if unknown.
StepStarts = Callable[[int], Sequence[float]]


class Member(NamedTuple):
    """A rank's part in a call; times are in microseconds by its own clock, None if unknown."""

    rank: int
    made_us: float | None  # by the host
    start_us: float | None  # where `us` begins
    us: float | None


class RankCall(NamedTuple):
    """A call of all of its ranks: those that were read."""

    row: int  # calls of one row have the same communicator and arguments
    comm: int
    members: Sequence[Member]
    alike: Hashable = None  # what calls of other ranks and communicators have that are like this


def step_starts(calls: Sequence[RankCall]) -> list[int]:
    """The place of the first call of each step, and of the end of the last one; [] if no step
    repeats.

    A step is the period of the rank with the most calls. It begins with a call of as many ranks as
    any, so that for these ranks it begins together.
    """
    counts = Counter(member.rank for call in calls for member in call.members)
    if not counts:
        return []
    reference = min(counts, key=lambda rank: (-counts[rank], rank))
    places = [
        place
        for place, call in enumerate(calls)
        if any(member.rank == reference for member in call.members)
    ]
    kept = _repeating([calls[place].row for place in places])
    rows = [calls[places[number]].row for number in kept]
    period = step(rows)
    if period.times <= MIN_STEPS:
        return []
    length = period.calls
    first = len(kept) - length * period.times
    if length == 1:
        made = [_made_us(calls[places[at]], reference) for at in kept[first:]]
        length = _calls_in_step(made)
    sizes = [len(calls[places[kept[first + at]]].members) for at in range(length)]
    first += sizes.index(max(sizes))
    starts = [places[kept[at]] for at in range(first, len(kept), length)]
    ends_whole = (len(kept) - first) % length == 0
    return [*starts, len(calls)] if ends_whole else starts


def no_starts(_rank: int) -> Sequence[float]:
    """Of ranks of which only their calls are known."""
    return ()


def starts_at(calls: Sequence[RankCall], starts_us: StepStarts) -> list[int]:
    """The same, where it is known when steps began; [] if none began between these calls.

    Ranks make their calls in one order, so that one of them tells.
    """
    for rank in sorted({member.rank for call in calls for member in call.members}):
        begun_us = starts_us(rank)
        made = sorted(_calls_of(calls, rank)) if begun_us else []
        within = [us for us in begun_us if made and made[0][0] < us <= made[-1][0]]
        if within:
            return sorted({made[bisect_left(made, (us, -1))][1] for us in within})
    return []


def _calls_of(calls: Sequence[RankCall], rank: int) -> Iterator[tuple[float, int]]:
    """When a rank made calls, and their places."""
    for place, call in enumerate(calls):
        for member in call.members:
            if member.rank == rank and member.made_us is not None:
                yield member.made_us, place


def _made_us(call: RankCall, rank: int) -> float:
    """When a rank made a call; 0 if that is unknown."""
    return next(member.made_us or 0.0 for member in call.members if member.rank == rank)


def _calls_in_step(made_us: Sequence[float]) -> int:
    """After how many equal calls the times between them repeat; 1 if they do not."""
    intervals = [after - before for before, after in pairwise(made_us)]
    limit = min(MAX_EQUAL_CALLS, len(intervals) // MIN_STEPS)
    differences = [_difference(intervals, calls) for calls in range(1, limit)]
    fitting = (at for at, mean in enumerate(differences, 1) if mean < REPEATED * differences[0])
    return next(fitting, 1)


def _difference(values: Sequence[float], apart: int) -> float:
    """The mean difference of values that are so many apart."""
    return fmean(abs(later - one) for one, later in zip(values, values[apart:], strict=False))


def _repeating(rows: Sequence[int]) -> list[int]:
    """The places of the calls in which a step repeats: all, or those without rows that are called
    less often than in each step, such as a loss that is printed.
    """
    counts = Counter(rows)
    for least in sorted(set(counts.values())):
        kept = [place for place, row in enumerate(rows) if counts[row] >= least]
        if step([rows[place] for place in kept]).times > MIN_STEPS:
            return kept
    return []
