"""One rank's part: at each size time the collective and the load, alone and beside each other.

Beside the other means: while the other runs all the time. So each side is timed beside more
operations of the other than end in that time. Otherwise how much longer it takes would depend on
how long both happen to be.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice

import msgspec

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.sizes import short_size
from busbw.core.sweep import SweepSpec, series, sizes
from busbw.engines.base import CollectiveCall, Engine, Launch, Probe
from busbw.engines.torch import TorchEngine
from busbw.launch.control import Control
from busbw.measure import plan, verification
from busbw.measure.events import Emit, Ended, EnterPhase, Started, now
from busbw.measure.plan import Calls
from busbw.measure.process_groups import Party, facts, join_groups
from busbw.measure.progress import Progress
from busbw.measure.sweep import running, settled
from busbw.overlap.loads import LOADS
from busbw.overlap.together import InThreads, OnStreams, Together
from busbw.overlap.types import OverlapJob, OverlapMeasured, OverlapResult, OverlapRow, OverlapSide

LONG_S = 2e-3  # a timed side takes about so long
MOST = 64  # operations of a timed side: all are enqueued before the first runs
TRIES = 3
LONGER = 1.5  # the other side has so many times the operations that it needs
ROOM = 4  # and at most so many times MOST
PLACES = 8  # in the buffers


@dataclass(slots=True)
class OpenedSide:
    """What a side runs: its operations in turn, on buffers at several places."""

    launches: list[Launch]
    operations: int = 1

    def take(self, times: float = 1.0) -> list[Launch]:
        """The timed operations, or so many times as many."""
        count = min(max(round(times * self.operations), 1), ROOM * MOST)
        return list(islice(cycle(self.launches), count))


def measure(job: OverlapJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run this process' part. `emit` is called on process 0 only."""
    party = join_groups(control)
    if party.groups > 1:
        raise UsageError("NCCL_TESTS_SPLIT makes groups, but all ranks take part", "unset it")
    for number, ctas in enumerate(job.ctas):
        with ExitStack() as stack:
            OverlapRun(job, party, emit, enter_phase, stack).sweep(ctas, is_first=number == 0)
    enter_phase("teardown", "")
    if control.process == 0:
        emit(Ended(now(), {}))


class OverlapRun:
    """All sizes with one limit of CTAs on this process."""

    def __init__(
        self, job: OverlapJob, party: Party, emit: Emit, enter_phase: EnterPhase, stack: ExitStack
    ) -> None:
        self._job, self._party, self._control = job, party, party.world
        self._emit, self._enter_phase, self._stack = emit, enter_phase, stack
        self._random = random.Random(1)  # the same on all ranks

    def sweep(self, ctas: int, *, is_first: bool) -> None:
        """Open what is needed, and measure all sizes."""
        self._enter_phase("init", f"{ctas} CTAs" if ctas else "")
        engine, calls, largest = self._open(self._job.sweep, ctas)
        load_of, load_text = self._load(engine)
        if is_first:
            self._start(engine, load_text)
        together: Together = InThreads()
        if engine.asynchronous:
            together = OnStreams(engine, self._control, self._job.sweep.timeout)
        for size in sizes(self._job.sweep, largest):
            call = calls.at(size, in_place=False)
            collective = OpenedSide(_launches(engine, calls, size, largest))
            self._size(size, ctas, together, (collective, load_of(size)), (engine, call))

    def _open(self, spec: SweepSpec, ctas: int) -> tuple[Engine, Calls, int]:
        """A communicator with its buffers, its calls and its largest size."""
        party = self._party
        place = party.local, party.color, self._control.process
        engine = TorchEngine(self._control, spec, *place, ctas=ctas)
        self._stack.enter_context(running(engine))
        if ctas and not engine.asynchronous:
            raise UsageError(
                f"--max-ctas {ctas}: the ranks run on CPUs, without NCCL", "leave it out"
            )
        self._job = settled(self._job, engine)
        memory = engine.memory_bytes()
        largest = plan.capped_max(self._job.sweep, memory // 2 if memory else None)
        largest = int(self._control.reduce_all([float(largest)], "min")[0])
        engine.allocate(largest, largest)
        calls = Calls(spec, next(series(spec, engine.size)), engine.size)
        plan.refuse_unsupported(
            engine.unsupported(calls.collective, calls.dtype, calls.reduction), calls
        )
        return engine, calls, largest

    def _load(self, engine: Engine) -> tuple[Callable[[int], OpenedSide], str]:
        """What makes the load's side at a size, and what an operation of it is."""
        name = self._job.load
        if name in LOADS:
            assert isinstance(engine, TorchEngine)
            operation, text = LOADS[name](engine.device)
            return lambda _: OpenedSide([operation]), text
        spec = msgspec.structs.replace(self._job.sweep, collective=name)
        other, calls, largest = self._open(spec, 0)
        text = f"{name} of the same size on a communicator of its own"
        return lambda size: OpenedSide(_launches(other, calls, size, largest)), text

    def _start(self, engine: Engine, load_text: str) -> None:
        result = OverlapResult(
            spec=self._job.sweep,
            load=self._job.load,
            load_text=load_text,
            **facts(self._job, self._party, engine),
        )
        if self._control.process == 0:
            self._emit(Started(result))

    def _size(
        self,
        size: int,
        ctas: int,
        together: Together,
        sides: tuple[OpenedSide, OpenedSide],
        checked: tuple[Engine, CollectiveCall],
    ) -> None:
        """Measure and report one size."""
        collective, load = sides
        self._enter_phase("timing", short_size(size), Progress(size, 1))
        together.warm(collective.launches, load.launches)
        for number, side in enumerate(sides):
            self._choose_operations(together, side, is_load=number == 1)
        wrong = self._wrong(together, load, *checked)
        progress = Progress(size, 1)
        self._enter_phase("timing", short_size(size), progress)
        ratio = self._outlasting(together, collective, load)
        alone: tuple[list[float], list[float]] = [], []
        beside: tuple[list[float], list[float]] = [], []
        for _ in range(self._job.rounds):
            kinds = [0, 1, 2, 3]
            self._random.shuffle(kinds)
            for kind in kinds:
                self._take(kind, together, sides, ratio, alone, beside)
                progress.done += 1
        row = OverlapRow(
            size_bytes=size,
            ctas=ctas,
            collective=OverlapSide(
                operations=collective.operations, alone_s=alone[0], beside_s=beside[0]
            ),
            load=OverlapSide(operations=load.operations, alone_s=alone[1], beside_s=beside[1]),
        )
        if self._control.process == 0:
            self._emit(OverlapMeasured(row, wrong))

    def _take(
        self,
        kind: int,
        together: Together,
        sides: tuple[OpenedSide, OpenedSide],
        ratio: tuple[float, float],
        alone: tuple[list[float], list[float]],
        beside: tuple[list[float], list[float]],
    ) -> None:
        """One sample: 0 and 1 are the collective and the load alone, 2 and 3 beside the other."""
        collective, load = sides
        if kind == 0:
            alone[0].append(self._slowest(together, collective.take(), ())[0])
        elif kind == 1:
            alone[1].append(self._slowest(together, (), load.take())[1])
        elif kind == 2:
            others = load.take(ratio[1])
            beside[0].append(self._slowest(together, collective.take(), others)[0])
        else:
            others = collective.take(ratio[0])
            beside[1].append(self._slowest(together, others, load.take())[1])

    def _slowest(
        self, together: Together, first: Sequence[Launch], second: Sequence[Launch]
    ) -> tuple[float, float]:
        """The times of both sides on the rank that takes longest."""
        self._control.barrier()
        first_s, second_s = self._control.reduce_all(list(together.take(first, second)), "max")
        return first_s, second_s

    def _choose_operations(self, together: Together, side: OpenedSide, *, is_load: bool) -> None:
        """So many that the side alone takes about LONG_S."""
        operation_s = []
        for _ in range(TRIES):
            launches = side.take()
            pair = ((), launches) if is_load else (launches, ())
            operation_s.append(self._slowest(together, *pair)[is_load])
        side.operations = min(max(round(LONG_S / max(min(operation_s), 1e-9)), 1), MOST)

    def _outlasting(
        self, together: Together, collective: OpenedSide, load: OpenedSide
    ) -> tuple[float, float]:
        """How many times its timed operations each side runs to outlast the other.

        NoMeasurement if even the most operations do not.
        """
        ratios = [LONGER, LONGER]
        for number in (0, 1):
            while not self._outlasts(together, collective, load, number, ratios[number]):
                side = (collective, load)[number]
                if ratios[number] * side.operations >= ROOM * MOST:
                    name = (self._job.sweep.collective, self._job.load)[number]
                    raise NoMeasurement(
                        f"{ROOM * MOST} operations of {name} end before the other side does",
                        "measure larger sizes, or another load",
                    )
                ratios[number] *= 2
        return ratios[0], ratios[1]

    def _outlasts(
        self,
        together: Together,
        collective: OpenedSide,
        load: OpenedSide,
        number: int,
        ratio: float,
    ) -> bool:
        """Whether on every rank side `number` with so many operations ends last."""
        first = collective.take(ratio if number == 0 else 1.0)
        second = load.take(ratio if number == 1 else 1.0)
        self._control.barrier()
        ends = together.take(first, second)
        margin_s = ends[number] - ends[1 - number]
        return self._control.reduce_all([margin_s], "min")[0] > 0

    def _wrong(
        self, together: Together, load: OpenedSide, engine: Engine, call: CollectiveCall
    ) -> int:
        """The wrong elements of a call beside the load, over all ranks."""
        probe = Probe(1, call.dtype, call.op, engine.size)
        verification.write(engine, call, probe)
        together.take([engine.bind(call)], load.take())
        wrong = sum(each.count for each in verification.check(engine, call, probe))
        return int(self._control.reduce_all([float(wrong)], "sum")[0])


def _launches(engine: Engine, calls: Calls, size: int, largest: int) -> list[Launch]:
    """Calls of a size at several places of the buffers."""
    count = max(min(PLACES, largest // size), 1)
    return [
        engine.bind(calls.at(size, in_place=False, shift_bytes=size * number))
        for number in range(count)
    ]
