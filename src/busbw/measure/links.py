"""Measures the link of each pair of ranks, which distinguishes a slow link from a late rank.

Pairs exchange data one after the other while the other ranks are idle. With several hosts one rank
of each is measured; on a single host all ranks are.
"""

import itertools
from collections.abc import Sequence

from busbw.core.collectives import BY_NAME
from busbw.core.dtypes import dtype
from busbw.core.layouts import Layout, matrix_totals
from busbw.core.result import PairLink, RankDevice
from busbw.engines.base import CollectiveCall, Engine
from busbw.launch.control import Control
from busbw.measure.batches import Batches
from busbw.measure.events import EnterPhase

BYTES = 1 << 22  # in each direction
MIN_BYTES = 1 << 16  # below, a pair's time is latency
SAMPLES = 7
MAX_PAIRS = 300
ITEM = "float"


def pairs(devices: Sequence[RankDevice]) -> list[tuple[int, int]]:
    """The pairs to measure: one rank per host, or all ranks of a single host.

    Beyond MAX_PAIRS distant pairs are left out.
    """
    first_ranks = {device.host: device.rank for device in reversed(devices)}
    if len(first_ranks) > 1:
        ranks = sorted(first_ranks.values())
    else:
        ranks = sorted(device.rank for device in devices)
    count = len(ranks)
    nearest = sorted(
        itertools.combinations(range(count), 2),
        key=lambda pair: min(pair[1] - pair[0], count - pair[1] + pair[0]),
    )
    return [(ranks[a], ranks[b]) for a, b in nearest[:MAX_PAIRS]]


def measure(
    engine: Engine,
    control: Control,
    batches: Batches,
    devices: Sequence[RankDevice],
    room_bytes: int,
    enter_phase: EnterPhase,
    limit_s: float,
) -> list[PairLink]:
    """The links of all pairs, on process 0; [] elsewhere, or with few ranks or little memory."""
    chosen, size = pairs(devices), min(BYTES, room_bytes)
    row, item = BY_NAME["alltoallv"], dtype(ITEM)
    if len(chosen) < 3 or size < MIN_BYTES or engine.unsupported(row, item, None):
        return []
    links = []
    for a, b in chosen:
        count = size // item.itemsize
        matrix = _exchange_matrix(a, b, count, engine.size)
        layout = Layout(count, engine.size, 0, matrix)
        call = CollectiveCall(row, item, None, layout, *matrix_totals(matrix), in_place=False)
        enter_phase("links", f"ranks {a} and {b}")
        seconds = _pair_s(engine, control, batches, call, {a, b}, limit_s)
        if seconds is not None:
            links.append(PairLink(a, b, seconds, size / seconds))
    return links


def _exchange_matrix(a: int, b: int, count: int, ranks: int) -> tuple[tuple[int, ...], ...]:
    """The elements from each rank to each other: `count` from a to b and from b to a."""
    rows = [[0] * ranks for _ in range(ranks)]
    rows[a][b] = rows[b][a] = count
    return tuple(map(tuple, rows))


def _pair_s(
    engine: Engine,
    control: Control,
    batches: Batches,
    call: CollectiveCall,
    pair: set[int],
    limit_s: float,
) -> float | None:
    """Seconds of the fastest operation, on process 0; None elsewhere.

    An operation counts from the later start to the later end, so that a late rank does not count as
    a slow link. Operations behind a fence start together, and batches then contain no lateness.
    """
    launch = engine.bind(call)
    launch()
    engine.synchronize(limit_s)
    taken = batches.take([launch] * SAMPLES, call.send * call.dtype.itemsize / 1e9)
    late_s = taken.late_s or [[0.0] * SAMPLES for _ in engine.ranks]
    spans: dict[int, list[tuple[float, float]]] = {}
    for rank, lates, durations in zip(engine.ranks, late_s, taken.durations_s, strict=True):
        if rank in pair:
            spans[rank] = list(zip(lates, durations, strict=True))
    by_process = control.gather(spans)
    if by_process is None:
        return None
    of_pair: list[list[tuple[float, float]]] = []
    for process_spans in by_process:
        of_pair += process_spans.values()
    return float(min(_exchange_s(operation) for operation in zip(*of_pair, strict=True)))


def _exchange_s(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds from the later start to the later end; each rank has its lateness and duration."""
    start = max(late for late, _ in spans)
    return max(late + duration for late, duration in spans) - start
