"""Measures the link of each pair of ranks, which distinguishes a slow link from a late rank.

Pairs exchange data one after the other while the other ranks are idle. With several hosts one rank
per host is measured, on one host all.
"""

import itertools
from collections.abc import Sequence

from busbw.core.collectives import BY_NAME
from busbw.core.dtypes import dtype
from busbw.core.layouts import Layout, matrix_totals
from busbw.core.result import Device, Link
from busbw.engines.base import Call, Engine
from busbw.launch.control import Control
from busbw.measure.batches import Batches
from busbw.measure.events import EnterPhase

BYTES = 1 << 22  # each way
LEAST_BYTES = 1 << 16  # below, a pair's time is latency
SAMPLES = 7
MAX_PAIRS = 300
ITEM = "float"


def pairs(devices: Sequence[Device]) -> list[tuple[int, int]]:
    """The pairs to measure: one rank per host, or all ranks of a single host.

    Beyond MAX_PAIRS distant pairs are left out.
    """
    first = {device.host: device.rank for device in reversed(devices)}
    ranks = sorted(first.values()) if len(first) > 1 else sorted(device.rank for device in devices)
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
    devices: Sequence[Device],
    room_bytes: int,
    enter_phase: EnterPhase,
    limit_s: float,
) -> list[Link]:
    """The links of all pairs, on process 0; [] elsewhere, with fewer than three ranks, or with
    too little memory.
    """
    chosen, size = pairs(devices), min(BYTES, room_bytes)
    row, kind = BY_NAME["alltoallv"], dtype(ITEM)
    if len(chosen) < 3 or size < LEAST_BYTES or engine.unsupported(row, kind, None):
        return []
    found = []
    for a, b in chosen:
        count = size // kind.itemsize
        matrix = tuple(
            tuple(count if {i, j} == {a, b} and i != j else 0 for j in range(engine.size))
            for i in range(engine.size)
        )
        call = Call(
            row,
            kind,
            None,
            Layout(count, engine.size, 0, matrix),
            *matrix_totals(matrix),
            in_place=False,
        )
        enter_phase("links", f"ranks {a} and {b}")
        seconds = _pair(engine, control, batches, call, {a, b}, limit_s)
        if seconds is not None:
            found.append(Link(a, b, seconds, size / seconds))
    return found


def _pair(
    engine: Engine, control: Control, batches: Batches, call: Call, pair: set[int], limit_s: float
) -> float | None:
    """Seconds of the fastest operation, from the later start to the later end, so that a late rank
    does not count as a slow link.

    Operations behind a fence start together, and batches then contain no lateness.
    """
    launch = engine.bind(call)
    launch()
    engine.synchronize(limit_s)
    taken = batches.take([launch] * SAMPLES, call.send * call.dtype.itemsize / 1e9)
    lates = taken.late_s or [[0.0] * SAMPLES for _ in engine.ranks]
    spans = [list(zip(*both, strict=True)) for both in zip(lates, taken.durations_s, strict=True)]
    every = control.gather(
        {rank: one for rank, one in zip(engine.ranks, spans, strict=True) if rank in pair}
    )
    if every is None:
        return None
    operations = zip(*(one for some in every for one in some.values()), strict=True)
    return float(
        min(
            max(late + duration for late, duration in both) - max(late for late, _ in both)
            for both in operations
        )
    )
