"""How long each rank was in calls in each step of a job.

All ranks of a job are equally long in a step, because they wait for each other. A rank that is
shorter in calls than the others was longer outside of them: the others waited for it. This holds
whatever the calls are, and through any chain of communicators: a rank that is late because it
waited for another one was in a call meanwhile. Each rank is timed by its own clock.

A call only counts if the rank stood still in it. DistributedDataParallel computes while it sends:
a wait in such a call delays nothing, and the next call has the same delay again. After a call in
which the rank stood still, the next one begins as much later as the call took longer. Otherwise it
begins as it would have. The spread over steps tells which of the two the times agree with.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from statistics import median
from typing import NamedTuple

from busbw.pattern.lateness.steps import (
    MIN_STEPS,
    RankCall,
    StepStarts,
    no_starts,
    starts_at,
    step_starts,
)

PARTS = 20  # of a record without steps
CLEAR = 0.8  # ratio of two spreads of which the smaller one decides
LEAST_SHOWN = 0.25  # of a step, without computation beside calls
QUEUED_SHARE = 0.25  # of the longest gap before a call: where the gap is less, it was queued


_Key = tuple[int, int]  # the row of a call, and how many calls of it its rank made before in a step


@dataclass(slots=True)
class StepWaits:
    """Times in microseconds; the lists have a value for each step.

    `waits` are by rank, `by_comm` by communicator and rank. Only differences between ranks have a
    meaning in them: the time of the transfers is included. In a step of `incomplete` a rank lacks
    calls or times.
    """

    steps_us: list[float]
    waits: dict[int, list[float]]
    by_comm: dict[int, dict[int, list[float]]] = field(default_factory=dict)
    incomplete: set[int] = field(default_factory=set)
    parts: bool = False
    at_most: bool = False
    numbers: Sequence[int] = ()  # of the steps in the training, if not all are here


class _Timed(NamedTuple):
    """A call as one rank made it."""

    step: int
    key: _Key
    comm: int
    made_us: float | None
    start_us: float | None
    us: float


class _Beside(NamedTuple):
    """How long the ranks computed beside calls, by their key; and in all of them in which the next
    call was queued.
    """

    us: dict[_Key, float]
    queued_us: float


class _Edge(NamedTuple):
    """From a call of a rank to its next one, over all steps: from start to start (interval) and
    from end to start (gap).
    """

    spread_from_start: float
    spread_from_end: float
    interval_us: float
    gap_us: float
    following: Hashable  # what the next call is like


def of_calls(calls: Sequence[RankCall], starts_us: StepStarts = no_starts) -> StepWaits | None:
    """The waits in the calls of a job, in their order; None if less than two ranks have times, or
    the calls are too few. `starts_us` says when steps began, if that is known otherwise.
    """
    timed = [call for call in calls if any(member.us is not None for member in call.members)]
    ranks = sorted({member.rank for call in timed for member in call.members})
    starts = starts_at(timed, starts_us) or step_starts(timed)
    parts = not starts
    if parts:
        starts = [len(timed) * part // PARTS for part in range(PARTS + 1)]
    if len(ranks) < 2 or len(set(starts)) <= MIN_STEPS:
        return None
    steps = len(starts) - 1
    of_rank, incomplete = _by_rank(timed, starts)
    at_most = parts or not all(
        call.start_us is not None for own in of_rank.values() for call in own
    )
    alike = {call.row: call.row if call.alike is None else call.alike for call in timed}
    beside = _Beside({}, 0.0) if at_most else _computation(of_rank, alike)
    steps_us = _durations(of_rank, steps)
    found = StepWaits(
        steps_us,
        {rank: [0.0] * steps for rank in ranks},
        incomplete=incomplete,
        parts=parts,
        at_most=at_most,
    )
    for rank in ranks:
        _add(found, rank, of_rank[rank], beside)
    step_us = median(steps_us)
    if beside.queued_us > 0 and step_us > 0:
        _scale(found, 1 / max(1 - beside.queued_us / step_us, LEAST_SHOWN))
    return found


def _by_rank(
    calls: Sequence[RankCall], starts: Sequence[int]
) -> tuple[dict[int, list[_Timed]], set[int]]:
    """The timed calls of each rank, and the steps that lack a time or a part of a rank's calls."""
    of_rank: dict[int, list[_Timed]] = defaultdict(list)
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    incomplete: set[int] = set()
    for number, (first, after) in enumerate(pairwise(starts)):
        made: Counter[tuple[int, int]] = Counter()
        for call in calls[first:after]:
            for rank, made_us, start_us, us in call.members:
                counts[rank][number] += 1
                if us is None:
                    incomplete.add(number)
                    continue
                key = call.row, made[rank, call.row]
                made[rank, call.row] += 1
                of_rank[rank].append(_Timed(number, key, call.comm, made_us, start_us, us))
    for of_steps in counts.values():
        usual = median(of_steps[number] for number in range(len(starts) - 1))
        incomplete |= {number for number in range(len(starts) - 1) if 2 * of_steps[number] < usual}
    return of_rank, incomplete


def _computation(of_rank: Mapping[int, Sequence[_Timed]], alike: Mapping[int, Hashable]) -> _Beside:
    """What the ranks computed beside calls. Ranks do so in calls that are alike, or none does.

    One call of a step is left out: of a step that waits for nothing, nothing could be said.
    """
    edges: dict[_Key, list[_Edge]] = defaultdict(list)
    for calls in of_rank.values():
        for key, pairs in _pairs(calls).items():
            edges[key].append(_edge(pairs, alike))
    pools: dict[Hashable, list[_Edge]] = defaultdict(list)
    pool_of = {
        key: (alike[key[0]], key[1] if len(of_key) > 1 else None) for key, of_key in edges.items()
    }
    for key, of_key in edges.items():
        pools[pool_of[key]] += of_key
    beside = {
        key
        for key, of_key in edges.items()
        if _is_independent(pools[pool_of[key]]) or _begins_before_end(of_key)
    }
    beside_us = {
        key: min(edge.interval_us for edge in of_key)
        for key, of_key in edges.items()
        if key in beside or _is_queued(of_key)
    }
    if beside_us and len(beside_us) == len(edges):
        del beside_us[max(edges, key=lambda key: min(edge.gap_us for edge in edges[key]))]
    queued_us = sum(us for key, us in beside_us.items() if key not in beside)
    return _Beside(beside_us, queued_us)


def _pairs(calls: Sequence[_Timed]) -> dict[_Key, list[tuple[_Timed, _Timed]]]:
    """By key of a rank's calls, each with the next one."""
    pairs: dict[_Key, list[tuple[_Timed, _Timed]]] = defaultdict(list)
    for call, following in pairwise(calls):
        pairs[call.key].append((call, following))
    return pairs


def _edge(pairs: Sequence[tuple[_Timed, _Timed]], alike: Mapping[int, Hashable]) -> _Edge:
    intervals = [(following.start_us or 0.0) - (call.start_us or 0.0) for call, following in pairs]
    gaps = [interval - call.us for interval, (call, _) in zip(intervals, pairs, strict=True)]
    following = alike[pairs[0][1].key[0]]
    return _Edge(_spread(intervals), _spread(gaps), median(intervals), median(gaps), following)


def _is_independent(edges: Sequence[_Edge]) -> bool:
    """Whether the next call began without regard to the end of this one."""
    from_start = sum(edge.spread_from_start for edge in edges)
    return from_start < CLEAR * sum(edge.spread_from_end for edge in edges)


def _begins_before_end(edges: Sequence[_Edge]) -> bool:
    """Whether the next call began while this one ran."""
    return any(edge.gap_us < -QUEUED_SHARE * edge.interval_us for edge in edges)


def _is_queued(edges: Sequence[_Edge]) -> bool:
    """Whether the next call, which is the same on all ranks, began at the end of this one on ranks
    that waited, and later on others: these computed meanwhile.
    """
    if len({edge.following for edge in edges}) > 1:
        return False
    gaps = [edge.gap_us for edge in edges]
    least_us = min(edge.interval_us for edge in edges)
    return min(gaps) < QUEUED_SHARE * max(gaps) and max(gaps) > QUEUED_SHARE * least_us


def _spread(values: Sequence[float]) -> float:
    """The sum of the distances from the median."""
    middle = median(values)
    return sum(abs(value - middle) for value in values)


def _durations(of_rank: Mapping[int, Sequence[_Timed]], steps: int) -> list[float]:
    """How long each step was: the median over ranks of the time from its first call to that of the
    next step; the last one is as long as the usual.
    """
    durations: list[list[float]] = [[] for _ in range(steps)]
    for calls in of_rank.values():
        firsts: dict[int, float] = {}
        for call in calls:
            begin_us = call.made_us if call.start_us is None else call.start_us
            if begin_us is not None:
                firsts.setdefault(call.step, begin_us)
        for number, start_us in firsts.items():
            if number + 1 in firsts:
                durations[number].append(firsts[number + 1] - start_us)
    known = [median(values) if values else 0.0 for values in durations]
    usual = median(known[:-1])
    return [duration or usual for duration in known]


def _add(found: StepWaits, rank: int, calls: Sequence[_Timed], beside: _Beside) -> None:
    """Add the time that a rank stood still in calls. Time in several calls at once counts once."""
    waits, end_us = found.waits[rank], -math.inf
    by_comm: dict[int, list[float]] = {}
    for call, following in zip_longest(calls, calls[1:]):
        us = call.us
        if call.key in beside.us:
            us = max(0.0, _until(call, following) - beside.us[call.key])
        elif call.start_us is not None:
            us = max(0.0, call.start_us + us - max(call.start_us, end_us))
            end_us = max(end_us, call.start_us + call.us)
        waits[call.step] += us
        if call.comm not in by_comm:
            by_comm[call.comm] = [0.0] * len(waits)
        by_comm[call.comm][call.step] += us
    for comm, of_comm in by_comm.items():
        found.by_comm.setdefault(comm, {})[rank] = of_comm


def _until(call: _Timed, following: _Timed | None) -> float:
    """The time from a call's start to its end, or to that of the next one if this is earlier."""
    if following is None or following.start_us is None or call.start_us is None:
        return call.us
    return min(call.us, following.start_us - call.start_us)


def _scale(found: StepWaits, factor: float) -> None:
    """Multiply all waits.

    How long the ranks computed beside calls was seen on the late rank, where it took longer, in the
    proportion of its delay to the step. With this share of the step, each delay is so many times
    what was added up.
    """
    for waits in (found.waits, *found.by_comm.values()):
        for rank, values in waits.items():
            waits[rank] = [factor * value for value in values]
