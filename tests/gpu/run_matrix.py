"""Verifies every collective x element type x operator on real GPUs through the nccl engine.

`mpirun -np 2 python tests/gpu/run_matrix.py`, or `python tests/gpu/run_matrix.py --gpus 2` for one
process that drives two. Prints a line per failure and a last line with the figures; exits 1 if
anything was wrong, 3 if it could not run.
"""

import argparse
import os
import platform
import sys
import traceback
from collections import Counter
from collections.abc import Iterator

from busbw.core.collectives import COLLECTIVES, Collective
from busbw.core.dtypes import DTYPES
from busbw.core.errors import BusbwError
from busbw.core.redops import REDOPS, RedOp
from busbw.core.sweep import Series, SweepSpec
from busbw.engines.base import CollectiveCall, Launch, Probe
from busbw.engines.nccl import PRESCALED, NcclEngine
from busbw.launch.control import Control
from busbw.launch.rendezvous import join
from busbw.measure import verification
from busbw.measure.plan import Calls

LIMIT_S = 60.0
SEED = 4242
SYMMETRIC, SYMMETRIC_ALIGNMENT = 2, 4


class Matrix:
    """Runs the combinations on an engine and counts the outcomes."""

    def __init__(self, engine: NcclEngine, control: Control, size: int, alignment: int) -> None:
        self.engine, self.control, self.size, self.alignment = engine, control, size, alignment
        self.verified, self.wrong = 0, 0
        self.unsupported: Counter[str] = Counter()

    def run(self) -> None:
        """Every combination of the table."""
        for collective in COLLECTIVES:
            for dtype in DTYPES:
                for op in REDOPS if collective.reduces else (None,):
                    reason = self.engine.unsupported(collective, dtype, op) or self._known_fault(op)
                    if reason:
                        self.unsupported[reason] += 1
                        continue
                    for root in {0, self.engine.size - 1} if collective.rooted else (-1,):
                        self._measure(collective, Series(dtype.name, op.name if op else "", root))

    def _known_fault(self, op: RedOp | None) -> str:
        """NCCL 2.28.9's kernel for scaled inputs on one rank leaves the last 4 of 8,194 elements
        of 8 bytes unwritten.
        """
        return (
            "NCCL does not write all elements on one rank"
            if self.engine.size == 1 and op and op.name in PRESCALED
            else ""
        )

    def _measure(self, collective: Collective, series: Series) -> None:
        calls = Calls(SweepSpec(collective=collective.name), series, self.engine.size)
        places = (False, True) if collective.in_place_checked else (False,)
        for in_place in places:
            for shift in (0, max(calls.dtype.itemsize, self.alignment)):
                call = calls.at(self.size, in_place=in_place, shift_bytes=shift)
                for way, launch in self._ways(call):
                    self._verify(call, series, way, launch)

    def _ways(self, call: CollectiveCall) -> Iterator[tuple[str, Launch]]:
        bound = self.engine.bind(call)
        yield "alone", bound
        # Twice in place would reduce twice; one type and operator is enough to try the ways of
        # launching.
        if (
            call.dtype.name == "float"
            and not call.in_place
            and (call.op is None or call.op.name in ("sum", "mulsum"))
        ):
            yield "grouped", self.engine.grouped([bound, bound])
            yield "as a graph", self.engine.capture([bound, bound])

    def _verify(self, call: CollectiveCall, series: Series, way: str, launch: Launch) -> None:
        probe = Probe(SEED, call.dtype, call.op, self.engine.size)

        def once() -> None:
            launch()
            self.engine.synchronize(LIMIT_S)

        measured = verification.run_round(self.engine, call, once, probe)
        tally = verification.Tally()
        tally.add(self.engine.ranks, measured, probe)
        mismatches_of_ranks = self.control.allgather(tally.mismatches)
        bad = [mismatch for mismatches in mismatches_of_ranks for mismatch in mismatches]
        self.verified += 1
        self.wrong += bool(bad)
        if bad and self.control.process == 0:
            where = (
                f"{'in' if call.in_place else 'out of'} place, {way}, root {series.root}, shift"
                f" {call.shift_bytes}"
            )
            first = bad[0]
            print(
                f"WRONG {call.collective.name} {series.dtype} {series.op} ({where}): rank"
                f" {first.rank}, {first.wrong} elements, offset {first.offset}: expected"
                f" {first.expected}, got {first.got}",
                flush=True,
            )

    def summary(self) -> str:
        """The last line."""
        reasons = "; ".join(f"{reason}: {count}" for reason, count in self.unsupported.items())
        skipped = sum(self.unsupported.values())
        return (
            f"{self.verified} combinations verified, {self.wrong} wrong, {skipped}"
            f" unsupported{f' ({reasons})' if skipped else ''}"
        )


def local_number(control: Control) -> int:
    everyone = control.allgather(platform.node())
    return everyone[: control.process].count(platform.node())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=1, help="GPUs a process")
    parser.add_argument(
        "--bytes",
        type=int,
        default=(1 << 16) + 24,
        help="size of a call; the default leaves ragged ends",
    )
    parser.add_argument("--register", type=int, default=0, help="-R of the engine")
    args = parser.parse_args()
    control = join(dict(os.environ), expect=None)
    first = local_number(control) * args.gpus
    spec = SweepSpec(collective="all_reduce", local_register=args.register)
    engine = NcclEngine(control, spec, range(first, first + args.gpus))
    # In symmetric windows of NCCL 2.28.9, data shifted by 1 or 2 bytes arrived wrong; whose fault
    # it is was not established.
    matrix = Matrix(
        engine, control, args.bytes, SYMMETRIC_ALIGNMENT if args.register == SYMMETRIC else 1
    )
    try:
        room = 2 * args.bytes + 64
        engine.allocate(room, room)
        matrix.run()
    except BaseException:
        traceback.print_exc()  # first: an abort may wait for ranks that are stuck
        engine.close(abort=True)
        raise
    engine.close()
    if control.process == 0:
        print(f"{engine.library()}", file=sys.stderr)
        print(matrix.summary(), flush=True)
    control.close()
    return 1 if matrix.wrong else 0


if __name__ == "__main__":
    try:
        code = main()
    except BusbwError as error:
        print(error.render(), file=sys.stderr, flush=True)
        # Other ranks may be waiting for this one: leave without the libraries' orderly end, and let
        # the launcher stop them.
        os._exit(int(error.exit))
    sys.exit(code)
