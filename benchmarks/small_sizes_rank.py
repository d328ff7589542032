"""One rank of small_sizes.py: loops of Python, busbw-native and C alternate on one communicator.

    small_sizes_rank.py LIBRARY LARGEST ROUNDS ANSWER

LIBRARY is nccl_loop.c, LARGEST the bytes of the buffers. Rank 0 writes ANSWER: rows of collective,
bytes, whether in place, and the microseconds of each round by loop, each a mean over the ranks;
`native enqueue`, `python enqueue` and `C enqueue` are those of enqueueing one operation.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busbw.core.collectives import COLLECTIVES
from busbw.core.garbage import collect_seldom
from busbw.core.sweep import SweepSpec, series
from busbw.engines.base import Launch
from busbw.engines.nccl import NcclEngine
from busbw.launch.control import Control
from busbw.launch.rendezvous import join
from busbw.measure import timing
from busbw.measure.plan import Calls
from busbw.measure.progress import Progress

ITERS = 20
# The order of nccl_loop.c.
NAMES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "gather",
    "scatter",
    "sendrecv",
    "hypercube",
    "alltoallv",
)


class CRank(ctypes.Structure):
    """`struct rank` of nccl_loop.c."""

    _fields_ = (
        ("collective", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("matrix", ctypes.POINTER(ctypes.c_size_t)),
        ("comm", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


@dataclass
class Cell:
    """One collective, size and placement: its launches, its arguments in C, and its times."""

    name: str
    size: int
    in_place: bool
    launches: Sequence[Launch]
    rank: CRank
    micros: dict[str, list[float]] = field(default_factory=dict)


class Loops:
    """The ways to time a cell on this rank's engine."""

    def __init__(self, control: Control, library: str, largest: int) -> None:
        self.control, self.spec = control, SweepSpec(collective="all_reduce", iters=ITERS, check=0)
        self.engine = NcclEngine(control, self.spec, [control.process])
        self.largest = largest
        self.engine.allocate(largest, largest)
        self._loop = self.engine.loop()
        self._c = ctypes.CDLL(library)
        self.ways: dict[str, Callable[[Cell], tuple[float, float]]] = {
            "python": lambda cell: self._by_busbw(cell, None),
            "native": lambda cell: self._by_busbw(cell, self._loop),
            "C": self._by_c,
        }

    def cells(self) -> list[Cell]:
        """All cells whose ranks have data to move."""
        cells: list[Cell] = []
        for row in COLLECTIVES:
            if row.ranks_power_of_two and self.engine.size & (self.engine.size - 1):
                continue
            spec = SweepSpec(collective=row.name, iters=ITERS, check=0)
            calls = Calls(spec, next(series(spec, self.engine.size)), self.engine.size)
            size = 8
            while size <= self.largest:
                cells += [self._cell(calls, size, in_place=place) for place in (False, True)]
                size *= 2
        return [cell for cell in cells if cell.launches]

    def _cell(self, calls: Calls, size: int, *, in_place: bool) -> Cell:
        name, ranks = calls.collective.name, self.engine.size
        call = calls.at(size, in_place=in_place)
        moved = calls.moved_bytes(call)[0]
        matrix = (ctypes.c_size_t * ranks**2)()
        for number, row in enumerate(call.layout.matrix):
            matrix[number * ranks : (number + 1) * ranks] = row
        handles = int(self.engine._comms[0].handle), self.engine._streams[0].handle
        rank = CRank(NAMES.index(name), self.engine.ranks[0], ranks, matrix, *handles)
        launches: list[Launch] = []
        for number in range(min(self.largest // moved, ITERS) if moved else 0):
            target = calls.at(size, in_place=in_place, shift_bytes=number * moved)
            launches.append(self.engine.bind(target))
        return Cell(name, moved, in_place, launches, rank)

    def _by_busbw(self, cell: Cell, loop: Any) -> tuple[float, float]:
        timed = timing.run(
            self.engine, self.control, cell.launches, self.spec, Progress(cell.size), loop
        )
        return timed.cpu_time_s, timed.time_s

    def _by_c(self, cell: Cell) -> tuple[float, float]:
        buffers = [ctypes.c_void_p(address) for address in self.engine._buffers.pairs[0]]
        size, place = ctypes.c_size_t(cell.size), ctypes.c_int(cell.in_place)
        rank, seconds = ctypes.byref(cell.rank), (ctypes.c_double * 2)()
        self._c.nccl_loop_first(rank, *buffers, size, place)
        largest, iters = ctypes.c_size_t(self.largest), ctypes.c_int(ITERS)
        self.control.barrier()
        self._c.nccl_loop_timed(rank, *buffers, size, largest, place, iters, seconds)
        return seconds[0], seconds[1]


def main() -> None:
    """Measure on this rank; rank 0 writes the answer."""
    library, largest, rounds, answer = sys.argv[1:]
    collect_seldom()
    control = join(dict(os.environ), expect=None)
    loops = Loops(control, library, int(largest))
    cells = loops.cells()
    for number in range(int(rounds) + 1):
        names = list(loops.ways)
        for cell in cells:
            for name in names[number % 3 :] + names[: number % 3]:
                enqueue_s, time_s = loops.ways[name](cell)
                if number:  # the first round warms up
                    cell.micros.setdefault(name, []).append(1e6 * time_s)
                    cell.micros.setdefault(f"{name} enqueue", []).append(1e6 * enqueue_s)
    by_rank = control.gather([cell.micros for cell in cells])
    rows = []
    for index, cell in enumerate(cells if by_rank else ()):
        means = {}
        for name in cell.micros:
            of_ranks = zip(*(ranks[index][name] for ranks in by_rank or ()), strict=True)
            means[name] = [sum(values) / control.processes for values in of_ranks]
        rows.append((cell.name, cell.size, cell.in_place, means))
    if rows:
        Path(answer).write_text(json.dumps(rows), encoding="ascii")
    loops.engine.close()
    control.close()


if __name__ == "__main__":
    main()
