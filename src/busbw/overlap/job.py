"""One rank's part: open communicators, and at each size time the collective and the load."""

from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from busbw.core.errors import UsageError
from busbw.core.sizes import short_size
from busbw.core.sweep import SweepSpec, series, sizes
from busbw.engines.base import CollectiveCall, Engine, Launch, Probe
from busbw.engines.torch import TorchEngine
from busbw.launch.control import Control
from busbw.measure import network, plan, verification
from busbw.measure.events import Emit, Ended, EnterPhase, Note, Started, now
from busbw.measure.plan import Calls
from busbw.measure.process_groups import Party, facts, join_all
from busbw.measure.progress import Progress
from busbw.measure.sweep import running, settled
from busbw.overlap.loads import LOADS
from busbw.overlap.together import InThreads, OnStreams, Together
from busbw.overlap.trial import OverlapTrial, TimedSide
from busbw.overlap.types import OverlapJob, OverlapMeasured, OverlapResult, OverlapRow

PLACES = 8  # in the buffers


def measure(job: OverlapJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run this process' part. `emit` is called on process 0 only."""
    party = join_all(control, "an overlap")
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

    def sweep(self, ctas: int, *, is_first: bool) -> None:
        """Open what is needed, and measure all sizes."""
        self._enter_phase("init", f"{ctas} CTAs" if ctas else "")
        with network.starting(self._job, self._control) as log:
            engine, calls, largest = self._open(self._job.sweep, ctas)
            load_launches, load_text = self._load(engine)
        used = network.agreed(self._job, self._control, engine.library(), log.networks)
        if is_first:
            self._start(engine, load_text, used)
        together: Together = InThreads()
        if engine.asynchronous:
            together = OnStreams(engine, self._control, self._job.sweep.timeout)
        if largest < self._job.sweep.max_bytes and self._control.process == 0:
            self._emit(Note(f"note: sizes above {short_size(largest)} do not fit in the memory"))
        for size in sizes(self._job.sweep, largest):
            collective = TimedSide(
                self._job.sweep.collective, _launches(engine, calls, size, largest)
            )
            load = TimedSide(self._job.load, load_launches(size))
            trial = OverlapTrial(together, self._control, collective, load)
            progress = self._begin(size)
            trial.prepare()
            progress.done += 1
            wrong = self._wrong(together, load, engine, calls.at(size, in_place=False))
            trial.run(self._job.rounds, self._begin(size))
            row = OverlapRow(
                size_bytes=size, ctas=ctas, collective=collective.result(), load=load.result()
            )
            if self._control.process == 0:
                self._emit(OverlapMeasured(row, wrong))

    def _begin(self, size: int) -> Progress:
        progress = Progress(size)
        self._enter_phase("timing", short_size(size), progress)
        return progress

    def _open(self, spec: SweepSpec, ctas: int) -> tuple[Engine, Calls, int]:
        """A communicator with its buffers, its calls and its largest size."""
        plan.require_power_of_two(spec.row, self._control.processes)
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

    def _load(self, engine: Engine) -> tuple[Callable[[int], list[Launch]], str]:
        """What makes the load's operations at a size, and what one of them is."""
        name = self._job.load
        if name in LOADS:
            assert isinstance(engine, TorchEngine)
            operation, text = LOADS[name](engine.device)
            return lambda _: [operation], text
        spec = msgspec.structs.replace(self._job.sweep, collective=name)
        other, calls, largest = self._open(spec, 0)
        text = f"{name} of the same size on a communicator of its own"
        return lambda size: _launches(other, calls, size, largest), text

    def _start(self, engine: Engine, load_text: str, used: str) -> None:
        """Report the start; `used` is NCCL's network, '' if it is unknown."""
        result = OverlapResult(
            spec=self._job.sweep,
            load=self._job.load,
            load_text=load_text,
            **facts(self._job, self._party, engine),
        )
        result.library.network = used
        if self._control.process == 0:
            self._emit(Started(result))
            if note := network.unconfirmed(self._job, used):
                self._emit(Note(note))

    def _wrong(
        self, together: Together, load: TimedSide, engine: Engine, call: CollectiveCall
    ) -> int:
        """The wrong elements of a call beside the load, over all ranks."""
        probe = Probe(1, call.dtype, call.op, engine.size)
        verification.write(engine, call, probe)
        together.take([engine.bind(call)], load.timed())
        wrong = sum(each.count for each in verification.check(engine, call, probe))
        return int(self._control.reduce_all([float(wrong)], "sum")[0])


def _launches(engine: Engine, calls: Calls, size: int, largest: int) -> list[Launch]:
    """Calls of a size at several places of the buffers; PyTorch's all_reduce is in place."""
    count, in_place = max(min(PLACES, largest // size), 1), calls.collective.name == "all_reduce"
    return [
        engine.bind(calls.at(size, in_place=in_place, shift_bytes=size * number))
        for number in range(count)
    ]
