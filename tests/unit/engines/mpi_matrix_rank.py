"""One rank of the matrix: verifies every collective, type, operator, placement and root over MPI,
then corrupts what arrived.

Started by test_mpi_matrix.py as `mpirun -n N python mpi_matrix_rank.py`. Rank 0 prints one JSON
object.
"""

import faulthandler
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from busbw.core.collectives import COLLECTIVES, Collective
from busbw.core.dtypes import DTYPES, DType, dtype
from busbw.core.errors import NoMeasurement
from busbw.core.layouts import Layout
from busbw.core.redops import REDOPS
from busbw.core.result import Mismatch
from busbw.core.sweep import Series, SweepSpec
from busbw.engines.base import CollectiveCall, Probe
from busbw.engines.host_probe import bits_type
from busbw.engines.mpi import LARGEST_COUNT, MpiEngine
from busbw.launch.control import Control
from busbw.launch.rendezvous import join
from busbw.measure import verification
from busbw.measure.plan import Calls

ODD_ELEMENTS = 517
LONG_ELEMENTS = 40_000  # more than verification computes at once
HANGS_S = 80  # then every rank prints its stack to stderr, before the test times out
ROOM_BYTES = LONG_ELEMENTS * 8 + 64


class Matrix:
    """Runs every combination; all ranks take the same path, so that each call meets its peers."""

    def __init__(self, engine: MpiEngine, control: Control) -> None:
        self.engine, self.control = engine, control
        self.size, self.rank = engine.size, engine.ranks[0]
        self.random = random.Random(self.size)
        self.verified = 0
        self.covered: set[str] = set()
        self.wrong: list[str] = []
        self.flipped: list[tuple[str, int, list[Mismatch], list[Mismatch], tuple[int, int]]] = []

    def run(self) -> None:
        """The whole table."""
        for row, series in self._series():
            calls = Calls(SweepSpec(collective=row.name), series, self.size)
            for in_place in (False, True) if row.in_place_checked else (False,):
                for size, shift in self._sizes(calls.dtype, series.op):
                    self._verify(calls.at(size, in_place=in_place, shift_bytes=shift), series)
                self._corrupt(
                    calls.at(ODD_ELEMENTS * self.size * calls.dtype.itemsize, in_place=in_place),
                    series,
                )
            self.covered.add(f"{row.name} {series.dtype} {series.op} {series.root}")

    def _series(self) -> Iterator[tuple[Collective, Series]]:
        for row in COLLECTIVES:
            if row.ranks_power_of_two and self.size & (self.size - 1):
                continue
            ops = [op.name for op in REDOPS] if row.reduces else [""]
            roots = (
                (range(self.size) if self.size < 4 else (0, self.size - 1)) if row.rooted else [-1]
            )
            # two ranks have shown that every type arrives
            kinds = DTYPES if self.size == 2 else DTYPES[::4]
            for kind, op, root in product(kinds, ops, roots):
                yield row, Series(kind.name, op, root)

    def _sizes(self, kind: DType, op: str) -> Sequence[tuple[int, int]]:
        """(bytes, shift in bytes): one element, the smallest parts, an odd number of elements
        off their alignment, and many.
        """
        odd_bytes = ODD_ELEMENTS * kind.itemsize
        long = (
            [(LONG_ELEMENTS * kind.itemsize, 0)]
            if kind.name in ("half", "int32") and op in ("", "sum")
            else []
        )
        return [(kind.itemsize, 0), (16 * self.size, 0), (odd_bytes, kind.itemsize), *long]

    def _verify(self, call: CollectiveCall, series: Series) -> None:
        probe = Probe(self.verified + 1, call.dtype, call.op, self.size)
        wrongs = verification.run_round(self.engine, call, self.engine.bind(call), probe)
        self.verified += 1
        if wrongs[0].count:
            placement = (
                f"{'in' if call.in_place else 'out of'} place, root {series.root}, count"
                f" {call.layout.count}, shift {call.shift_bytes}"
            )
            self.wrong.append(
                f"rank {self.rank}: {call.collective.name} {series.dtype} {series.op} ({placement}):"
                f" {wrongs[0]}"
            )

    def _corrupt(self, call: CollectiveCall, series: Series) -> None:
        """One bit of one element of one rank is flipped after the call; that, and nothing else,
        must be reported.
        """
        probe = Probe(7, call.dtype, call.op, self.size)
        victim, fraction = self.random.randrange(self.size), self.random.random()
        bit = self.random.randrange(2 if probe.tolerance else 0, call.dtype.bits)
        launch = self.engine.bind(call)
        flipped: list[Mismatch] = []

        def corrupting() -> None:
            launch()
            if self.rank == victim:
                flipped.append(self._flip(call, probe, int(fraction * call.recv), bit))

        tally = verification.Tally()
        tally.add(
            self.engine.ranks, verification.run_round(self.engine, call, corrupting, probe), probe
        )
        name = f"{call.collective.name} {series.dtype} {series.op} {series.root}"
        self.flipped.append(
            (name, victim, flipped, tally.mismatches, (tally.wrong, tally.bad_rounds))
        )

    def reported(self) -> tuple[list[str], list[str]]:
        """The combinations whose flipped bit was reported exactly, by its own rank only; and a
        line for each other one.
        """
        caught, missed = set(), []
        for by_rank in zip(*self.control.allgather(self.flipped), strict=True):
            name, victim, *_ = by_rank[0]
            all_flipped = [mismatch for _, _, flips, _, _ in by_rank for mismatch in flips]
            reported = [mismatch for _, _, _, mismatches, _ in by_rank for mismatch in mismatches]
            if (
                len(all_flipped) == 1
                and all_flipped == reported
                and [counts for *_, counts in by_rank]
                == [(int(r == victim),) * 2 for r in range(self.size)]
            ):
                caught.add(name)
            else:
                missed.append(f"{name}: flipped {all_flipped}, reported {reported}")
        return sorted(caught), missed

    def _flip(self, call: CollectiveCall, probe: Probe, offset: int, bit: int) -> Mismatch:
        data = self.engine.view(call, "recv").view(bits_type(call.dtype))
        before = int(data[offset])
        data[offset] = before ^ 1 << bit
        return Mismatch(self.rank, offset, probe.text(before), probe.text(before ^ 1 << bit), 1)


def refusals(engine: MpiEngine) -> list[str]:
    """The errors of the engine for operations that MPI does not support."""
    row, count = COLLECTIVES[0], LARGEST_COUNT + 1
    too_long = CollectiveCall(
        row, dtype("int8"), REDOPS[0], Layout(count, engine.size), count, count, in_place=False
    )
    messages = []
    attempts: tuple[Callable[[], object], ...] = (
        lambda: engine.bind(too_long),
        lambda: engine.capture([]),
    )
    for attempt in attempts:
        try:
            attempt()
            messages.append("")
        except NoMeasurement as error:
            messages.append(error.message)
    return messages


def main() -> int:
    """Run the matrix; exits 0 even if data was wrong: the JSON has the outcome."""
    faulthandler.dump_traceback_later(HANGS_S)
    control = join(dict(os.environ), expect=None)
    engine = MpiEngine(control.comm, control.process, 0)  # type: ignore[attr-defined]
    engine.allocate(ROOM_BYTES, ROOM_BYTES)
    matrix = Matrix(engine, control)
    matrix.run()
    caught, missed = matrix.reported()
    wrong = [line for rank_wrongs in control.allgather(matrix.wrong) for line in rank_wrongs]
    answer = {
        "ranks": engine.size,
        "verified": matrix.verified,
        "covered": sorted(matrix.covered),
        "wrong": wrong,
        "caught": caught,
        "missed": missed,
        "refusals": refusals(engine),
        "devices": [
            device.rank
            for rank_devices in control.allgather(engine.devices())
            for device in rank_devices
        ],
        "library": engine.library().engine,
        "memory": [engine.memory_bytes(), engine.devices()[0].memory_bytes],
    }
    engine.close()
    if control.process == 0:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    control.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
