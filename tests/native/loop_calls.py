"""Prints, as JSON, what both loops call for each way to time an operation, and how whole sweeps end:
the nccl engine on fake libraries of NCCL and CUDA, without a GPU.

    BUSBW_PLUGIN=LIBRARY python loop_calls.py FOLDER SWEEPS

FOLDER has the fake libcuda.so.1 and libnccl.so.2. SWEEPS is JSON: {NAME: [FIELDS, ENVIRONMENT]}. The
answer is a list of {CASE: {"python": [CALL, ...], "native": [...]}} and {NAME: OUTCOME}.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from busbw.core.collectives import COLLECTIVES
from busbw.core.env import temporarily
from busbw.core.errors import BusbwError
from busbw.core.sweep import SweepSpec, series
from busbw.engines.base import Launch
from busbw.engines.nccl import NcclEngine
from busbw.engines.program import Loop
from busbw.launch.control import SoloControl
from busbw.measure import timing
from busbw.measure.batches import TICK_SAMPLES, HeldBatches
from busbw.measure.events import Note, RowDone, Started
from busbw.measure.job import SweepJob
from busbw.measure.plan import Calls
from busbw.measure.progress import Progress
from busbw.measure.sweep import measure

SIZE, POSITIONS, BUFFER = 1024, 3, 1 << 16
OLD_NCCL = 22700  # alltoall, gather and scatter are made of sends
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "aggregated": {"agg_iters": 2},
    "marked": {"per_iter_timing": 1, "iters": 4},
    "check timed": {"check_timed": True},
    "no iterations": {"iters": 0},
}


class Twice(SoloControl):
    """A control channel on which another process says what this one says: ranks 2 and 3 of 4."""

    def allgather(self, value: Any) -> list[Any]:
        return [value, value]


class Fakes:
    """The fake libraries, loaded in place of the real ones."""

    def __init__(self, folder: str) -> None:
        self.cuda = ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self.nccl = ctypes.CDLL(f"{folder}/libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
        self.cuda.fake_log.restype = ctypes.c_char_p

    def calls(self, work: Callable[[], object], fail_at: int = 0) -> list[str]:
        """What is called while `work` runs, and its error."""
        self.cuda.fake_clear()
        self.cuda.fake_fail_at(fail_at)
        error = ""
        try:
            work()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        self.cuda.fake_fail_at(0)
        lines = self.cuda.fake_log().decode().splitlines()
        return [*lines, error] if error else lines


class Measured:
    """One spec on an engine of `gpus` GPUs, and its launches."""

    def __init__(self, spec: SweepSpec, gpus: int, *, in_place: bool) -> None:
        self.spec, self.control = spec, Twice()
        self.engine = NcclEngine(self.control, spec, list(range(gpus)))
        self.engine.allocate(BUFFER, BUFFER)
        self.engine.mark(2 * TICK_SAMPLES)  # events are made once, which would be among the calls
        self.loop = self.engine.loop()
        calls = Calls(spec, next(series(spec, self.engine.size)), self.engine.size)
        self.launches: list[Launch] = [
            self.engine.bind(calls.at(SIZE, in_place=in_place, shift_bytes=number * SIZE))
            for number in range(POSITIONS)
        ]

    def classic(self, loop: Loop | None) -> None:
        """Time all iterations."""
        progress = Progress(SIZE)
        timing.run(self.engine, self.control, self.launches, self.spec, progress, loop)

    def precise(self, loop: Loop | None) -> None:
        """Time a batch."""
        taken = HeldBatches(self.engine, self.spec, loop).take(self.launches, 1e-4)
        assert len(taken.launch_s) == POSITIONS and min(taken.launch_s) > 0
        assert [len(times) for times in taken.durations_s] == [POSITIONS] * len(self.engine.ranks)

    def close(self) -> None:
        """Free all."""
        self.engine.close()


def cases(fakes: Fakes) -> Iterator[tuple[str, Measured, int]]:
    """Each case, and the number of the noted call that fails in it (0: none)."""
    for row in COLLECTIVES:
        for in_place in (False, True):
            for gpus in (1, 2):
                name = f"{row.name}, {gpus} GPUs, {'in' if in_place else 'out of'} place"
                spec = SweepSpec(collective=row.name, iters=5, check=0)
                yield name, Measured(spec, gpus, in_place=in_place), 0
    for name, fields in VARIANTS.items():
        for collective in ("all_reduce", "sendrecv"):
            spec = msgspec.convert({"collective": collective, "iters": 7, **fields}, SweepSpec)
            yield f"{collective}, {name}", Measured(spec, 1, in_place=False), 0
    for gpus in (1, 2):
        spec = SweepSpec(collective="reduce", op="mulsum", iters=2)
        yield f"mulsum, {gpus} GPUs", Measured(spec, gpus, in_place=False), 0
    for fail_at in range(1, 12):
        spec = SweepSpec(collective="hypercube", iters=2)
        yield f"failure of call {fail_at}", Measured(spec, 2, in_place=False), fail_at
    fakes.nccl.fake_set_version(OLD_NCCL)
    for collective in ("alltoall", "gather", "scatter"):
        yield (
            f"{collective} of an old NCCL",
            Measured(SweepSpec(collective=collective), 2, in_place=False),
            0,
        )


def compared(fakes: Fakes) -> dict[str, dict[str, list[str]]]:
    """What both loops call in each case and by each way of timing."""
    answer: dict[str, dict[str, list[str]]] = {}
    for name, measured, fail_at in cases(fakes):
        for way in (measured.classic, measured.precise):
            loops = {"python": None, "native": measured.loop}
            answer[f"{name}, {way.__name__}"] = {
                loop_name: fakes.calls(partial(way, loop), fail_at)
                for loop_name, loop in loops.items()
            }
        measured.close()
    return answer


def sweep(fakes: Fakes, fields: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """A whole sweep as a rank runs it: its loop, its notes, what its rows measure, and what ran."""
    fakes.cuda.fake_clear()  # its notes have room for one sweep
    reported, chosen = fakes.nccl.fake_reported(), fakes.nccl.fake_chosen()
    spec = msgspec.convert(
        {"collective": "all_reduce", "max_bytes": 64, "step_factor": 2, "check": 0, **fields},
        SweepSpec,
    )
    events: list[Any] = []
    try:
        with temporarily(environment):
            measure(SweepJob(sweep=spec, engine="nccl"), SoloControl(), events.append)
    except BusbwError as error:
        return {"error": [error.message, error.hint]}
    rows = [event.row for event in events if isinstance(event, RowDone) and event.final]
    for row in rows:
        assert row.out_of_place.time_s > 0 and row.in_place.time_s > 0
    (result,) = (event.result for event in events if isinstance(event, Started))
    events[-1].add_to(result)
    return {
        "ran": [[str(row.ran), str(row.ran_in_place)] for row in rows],
        "ran_unknown": result.ran_unknown,
        "connections": msgspec.to_builtins(result.ran.connections) if result.ran else [],
        "left": sorted(name for name in os.environ if name.startswith("NCCL_DEBUG")),
        "reported": fakes.nccl.fake_reported() - reported,
        "chosen": fakes.nccl.fake_chosen() - chosen,
        "loop": result.loop,
        "notes": [event.text for event in events if isinstance(event, Note)],
        "rows": [[row.size_bytes, row.count, row.dtype, row.op, row.iters] for row in rows],
    }


def main() -> None:
    """See the docstring of the module."""
    fakes = Fakes(sys.argv[1])
    requests = json.loads(sys.argv[2])
    print(
        json.dumps([compared(fakes), {name: sweep(fakes, *row) for name, row in requests.items()}])
    )


if __name__ == "__main__":
    main()
