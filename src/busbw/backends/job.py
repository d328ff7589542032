"""One rank's part: open the backends, then at each size check and time all of them in turn.

Each backend is an engine with communicators and buffers of its own. What it times is one call, or
a CUDA graph of several calls at different places of its buffers.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from time import perf_counter

import msgspec

from busbw.backends.kind import BackendRunning, SizeMeasured
from busbw.backends.opened import Opened, TimedBackend
from busbw.backends.rails import on_rails, use_rails
from busbw.backends.registry import BACKENDS, BackendRow, Opening, backend, why_not
from busbw.backends.types import EAGER, GRAPH, BackendsJob, BackendsResult, BackendsRow, BackendTime
from busbw.core.errors import NoMeasurement
from busbw.core.sizes import short_size
from busbw.core.sweep import series, sizes
from busbw.engines.base import CollectiveCall, Engine, LaunchSequence, Probe
from busbw.launch.agreement import attempt, first_reason
from busbw.launch.control import Control
from busbw.measure import adaptive_timing, network, plan, verification
from busbw.measure.batches import MAX_HELD, Batches, HeldBatches, HostClockBatches
from busbw.measure.events import Emit, Ended, EnterPhase, Note, Started, now
from busbw.measure.plan import Calls
from busbw.measure.process_groups import Party, facts, join_all
from busbw.measure.progress import Progress
from busbw.measure.sweep import running, settled
from busbw.model.usable_hardware import ideals
from busbw.stats.sampling import first_visit_samples

PLACES = 8  # in a backend's buffers, for calls outside of graphs
GRAPH_BYTES = 256 << 20  # buffers are large enough for a graph of calls at places of their own
UNTIMED = 3  # operations before the first visit
# A sample replays a graph for so long: it starts 7 us after the mark before it (H200), which made
# a single replay of 16 calls 7% too long.
REPLAYED_S, MAX_REPLAYS = 1e-3, 20


def measure(job: BackendsJob, control: Control, emit: Emit, enter_phase: EnterPhase) -> None:
    """Run this process' part. `emit` is called on process 0 only."""
    party = join_all(control, "a comparison")
    plan.require_power_of_two(job.sweep.row, control.processes)
    with ExitStack() as stack:
        run = BackendsRun(job, party, emit, enter_phase)
        run.open_all(stack)
        run.sweep()
        enter_phase("teardown", "")
        if control.process == 0:
            emit(Ended(now(), {}))


class BackendsRun:
    """All backends on this process."""

    def __init__(self, job: BackendsJob, party: Party, emit: Emit, enter_phase: EnterPhase) -> None:
        self._job, self._party, self._control = job, party, party.world
        self._emit, self._enter_phase = emit, enter_phase
        self._opened: list[Opened] = []
        self._left_out: dict[str, str] = dict(job.dropped)
        self._random = random.Random(1)  # the same on all ranks
        self._moved = max(job.blocks, 1)  # times the size of a row, by a call
        self._rails, self._over_rdma = use_rails(job.rails, party.world)

    def open_all(self, stack: ExitStack) -> None:
        """Open all that can run here, and report the start.

        NoMeasurement without the first of them, with which others are compared.
        """
        import torch

        on_gpus = torch.cuda.is_available()
        of_job = [row for row in BACKENDS if row.on_gpus in (on_gpus, None)]
        asked = self._job.backends or [
            row.name for row in of_job if self._job.blocks or not row.of_blocks
        ]
        self._asked = len(asked)
        with network.starting(self._job, self._control) as log:
            for name in asked:
                row = on_rails(backend(name), self._job.rails)
                reason = self._open(row, stack, on_gpus=on_gpus)
                if reason:
                    self._left_out[row.name] = reason
        if not self._opened:
            reasons = "; ".join(f"{name}: {why}" for name, why in self._left_out.items())
            raise NoMeasurement(f"no backend can run: {reasons}", "name others with --backends")
        library = self._opened[0].engine.library()
        used = network.agreed(self._job, self._control, library, log.networks)
        self._start(on_rails(backend(asked[0]), self._job.rails).name, used)

    def _open(self, row: BackendRow, stack: ExitStack, *, on_gpus: bool) -> str:
        """Open one; returns why it cannot run, the same on all processes."""
        job = self._job
        if row.name in job.dropped:
            return job.dropped[row.name]
        opening = Opening(
            control=self._control,
            spec=job.sweep,
            place=(self._party.local, self._party.color, self._control.process),
            copies=job.copies,
            blocks=job.blocks,
            limit_s=job.limit_s,
            rails=tuple(rail.name for rail in job.rails),
            over_rdma=self._over_rdma,
        )
        reason = first_reason(self._control, why_not(row, opening, on_gpus=on_gpus))
        if reason:
            return reason
        self._announce(BackendRunning(row.name))
        self._enter_phase("init", row.name)
        engine, failed = attempt(self._control, lambda: row.open(opening))
        if engine is None:
            return failed
        failed = failed or self._prepare(row, engine, stack)
        if failed:
            engine.close(abort=True)
        return failed

    def _prepare(self, row: BackendRow, engine: Engine, stack: ExitStack) -> str:
        """Allocate its buffers, and keep it; returns why that failed."""
        job = settled(self._job, engine)
        memory = engine.memory_bytes()
        share = memory // self._asked if memory else None
        most = msgspec.structs.replace(job.sweep, max_bytes=job.sweep.max_bytes * self._moved)
        largest = plan.capped_max(most, share)
        largest = int(self._control.reduce_all([float(largest)], "min")[0])
        size = min(max(job.in_graph, PLACES) * largest, max(GRAPH_BYTES, largest))
        size = size if engine.asynchronous else largest
        calls = Calls(job.sweep, next(series(job.sweep, engine.size)), engine.size)

        def supported() -> None:
            refusal = engine.unsupported(calls.collective, calls.dtype, calls.reduction)
            if refusal:
                raise NoMeasurement(refusal)

        # A rank where one fails must not leave the others waiting for it in the next.
        for step in (
            lambda: engine.allocate(size, size),
            engine.share,
            supported,
            lambda: self._verify_once(engine, calls),
        ):
            failed = attempt(self._control, step)[1]
            if failed:
                return failed
        self._job = job
        stack.enter_context(running(engine))
        self._opened.append(Opened(row, engine, calls, self._batches(engine), size))
        return ""

    def _verify_once(self, engine: Engine, calls: Calls) -> None:
        """Compile what verifies the data, which takes seconds that no size should be given."""
        call = calls.at(self._job.sweep.min_bytes, in_place=False)
        probe = Probe(1, call.dtype, call.op, engine.size)
        verification.write(engine, call, probe)
        verification.check(engine, call, probe)

    def _batches(self, engine: Engine) -> dict[str, Batches]:
        """How each mode is timed."""
        sweep = self._job.sweep
        if not engine.asynchronous:
            return {EAGER: HostClockBatches(self._control)}
        batches: dict[str, Batches] = {EAGER: HeldBatches(engine, sweep)}
        if self._job.in_graph:
            batches[GRAPH] = HeldBatches(engine, sweep, graphs=True)
        return batches

    def _start(self, default: str, used: str) -> None:
        """Report the start: the default is the first backend that was asked for and runs. `used` is
        NCCL's network, '' if it is unknown.
        """
        job, engine = self._job, self._opened[0].engine
        names = [opened.row.name for opened in self._opened]
        result = BackendsResult(
            spec=job.sweep,
            default=default if default in names else names[0],
            backends=names,
            left_out=self._left_out,
            in_graph=job.in_graph if any(each.engine.asynchronous for each in self._opened) else 0,
            copies=job.copies,
            blocks=job.blocks,
            rails=self._rails,
            **facts(job, self._party, engine),
        )
        for opened in self._opened:
            result.library.versions |= opened.engine.library().versions
        for rail in self._rails:  # the variables of each are not those of all rows
            for name in rail.variables:
                result.environment.pop(name, None)
        if not job.rails:  # which have bounds of their own
            result.ideal, _ = ideals(
                job.sweep.collective, result.world, result.topology, result.environment
            )
        result.library.network = used
        if self._control.process == 0:
            self._emit(Started(result))
            if note := network.unconfirmed(job, used):
                self._emit(Note(note))

    def sweep(self) -> None:
        """Measure every size."""
        job = self._job
        room = min(opened.bytes for opened in self._opened) // self._moved
        largest = min(job.sweep.max_bytes, room)
        if largest < job.sweep.max_bytes and self._control.process == 0:
            self._emit(Note(f"note: sizes above {short_size(largest)} do not fit in the memory"))
        for size in sizes(job.sweep, largest):
            if size not in job.done:
                self._measure(size)

    def _measure(self, size: int) -> None:
        timed = [TimedBackend(opened, mode) for opened in self._opened for mode in opened.batches]
        timed = [each for each in timed if each.running(size).name not in self._job.dropped]
        for each in timed:
            self._announce(each.running(size))
            self._check(each, size)
        while waiting := [each for each in timed if each.state and each.state.more]:
            self._random.shuffle(waiting)
            for each in waiting:
                self._visit(each, size)
        row = BackendsRow(size_bytes=size, times=[self._finished(each) for each in timed])
        if self._control.process == 0:
            self._emit(SizeMeasured(row))

    def _check(self, timed: TimedBackend, size: int) -> None:
        """Verify what will be timed, and find how long it takes. A backend that refuses the size
        on any rank has no time there.
        """
        progress = self._begin("verify", timed, size, 1)
        operation_s = 0.0

        def once() -> None:
            nonlocal operation_s
            timed.wrong = self._wrong(timed)
            operation_s = min(self._once_s(timed) for _ in range(UNTIMED))

        # A rank may read another one's data as soon as it runs: all must have written theirs.
        timed.why_not = self._tried(timed, lambda: self._make_ready(timed, size))
        timed.why_not = timed.why_not or self._tried(timed, once)
        progress.done += 1
        if timed.why_not:
            return
        timed.wrong = int(self._control.reduce_all([float(timed.wrong)], "sum")[0])
        operation_s = self._control.reduce_all([operation_s], "max")[0]
        if timed.mode == GRAPH:
            replays = min(max(round(REPLAYED_S / operation_s), 1), MAX_REPLAYS)
            timed.launches = [LaunchSequence(timed.launches * replays)]
            timed.operations *= replays
            operation_s *= replays
        sampling, batches = self._job.sweep.sampling, timed.batches
        assert sampling is not None
        timed.state = adaptive_timing.CellVisits(
            cycle(timed.launches),
            first_visit_samples(sampling, batches.each_s(operation_s)),
            operation_s,
            adaptive_timing.CellSamples(tick_s=batches.tick_s),
        )

    def _tried(self, timed: TimedBackend, step: Callable[[], None]) -> str:
        """Run a step; returns why it failed on any rank. Collective."""
        return attempt(self._control, step, timed.opened.engine.explained)[1]

    def _make_ready(self, timed: TimedBackend, size: int) -> None:
        """Bind the launches, and write their data."""
        self._bind(timed, size)
        for call in timed.calls:
            verification.write(timed.opened.engine, call, _probe(timed, call))
        timed.opened.engine.synchronize(self._job.sweep.timeout)

    def _bind(self, timed: TimedBackend, size: int) -> None:
        """The launches that will be timed: single calls at several places, or one graph of all."""
        opened = timed.opened
        wanted = self._job.in_graph if timed.mode == GRAPH else PLACES
        moved = size * self._moved
        count = max(min(wanted, opened.bytes // moved), 1)
        reduces = opened.calls.collective.name == "all_reduce"
        in_place = reduces and opened.row.in_place
        timed.calls = [
            opened.calls.at(moved, in_place=in_place, shift_bytes=moved * number)
            for number in range(count)
        ]
        launches = [opened.engine.bind(call) for call in timed.calls]
        if timed.mode == EAGER:
            timed.calls, timed.launches = timed.calls[:1], launches
            return
        launches[0]()  # what it sets up must not be part of the graph
        opened.engine.synchronize(self._job.sweep.timeout)
        timed.launches = [opened.engine.capture(launches)]
        timed.operations = count

    def _wrong(self, timed: TimedBackend) -> int:
        """The wrong elements on local ranks after one launch."""
        self._once_s(timed)
        checks = [
            verification.check(timed.opened.engine, call, _probe(timed, call))
            for call in timed.calls
        ]
        return sum(wrong.count for of_call in checks for wrong in of_call)

    def _once_s(self, timed: TimedBackend) -> float:
        began = perf_counter()
        timed.launches[0]()
        timed.opened.engine.synchronize(self._job.sweep.timeout)
        return perf_counter() - began

    def _visit(self, timed: TimedBackend, size: int) -> None:
        sampling, batches = self._job.sweep.sampling, timed.batches
        assert timed.state is not None and sampling is not None
        self._announce(timed.running(size))
        batches.progress = self._begin("timing", timed, size, MAX_HELD)
        adaptive_timing.visit(
            timed.state, batches, self._control, sampling, throttled=lambda: False, group_id=0
        )

    def _finished(self, timed: TimedBackend) -> BackendTime:
        """What was measured; complete on process 0."""
        result = BackendTime(
            backend=timed.opened.row.name,
            mode=timed.mode,
            operations=timed.operations,
            why_not=timed.why_not,
        )
        state, sampling = timed.state, self._job.sweep.sampling
        if state is None or sampling is None:
            return result
        measured = adaptive_timing.finish(state, self._control)
        if measured is not None:
            rates = timed.opened.calls.rates(timed.calls[0])
            result.cell = adaptive_timing.cell(
                measured,
                sampling,
                timed.operations,
                rates,
                synchronizes=timed.opened.calls.collective.synchronizes,
                host_timed=not timed.opened.engine.asynchronous,
            )
            result.cell.wrong = timed.wrong
        return result

    def _begin(self, phase: str, timed: TimedBackend, size: int, operations: int) -> Progress:
        progress = Progress(size * self._moved, operations)
        self._enter_phase(phase, f"{short_size(size)} {timed.opened.row.name}", progress)
        return progress

    def _announce(self, running: BackendRunning) -> None:
        if self._control.process == 0:
            self._emit(running)


def _probe(timed: TimedBackend, call: CollectiveCall) -> Probe:
    return Probe(1, call.dtype, call.op, timed.opened.engine.size)
