"""Classic timing: the same steps as nccl-tests.

One untimed operation, a barrier, then n iterations of m operations enqueued back to back, and one
wait at the end. The time is a pipelined mean, not a latency: for small sizes it is the longer of
enqueueing and running.
"""

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from busbw.core.sweep import SweepSpec
from busbw.engines.base import Engine, Launch
from busbw.engines.program import Loop, Mark, Part, ProgramMarker
from busbw.launch.control import Control
from busbw.measure.progress import Progress, no_batch

SYNC_AND_BARRIER, SYNC_ONLY, BARRIER_OUTSIDE = 1, 2, 3


@dataclass(slots=True)
class Timing:
    """Seconds per operation on this process.

    `time_s` is the total, `cpu_time_s` that of enqueueing only. `samples_s` has the time of each
    iteration with -I.
    """

    time_s: float
    cpu_time_s: float
    samples_s: list[float] = field(default_factory=list)


def run(
    engine: Engine,
    control: Control,
    launches: Sequence[Launch],
    spec: SweepSpec,
    progress: Progress,
    loop: Loop | None = None,
) -> Timing:
    """Time `spec.iters` iterations of `launches` in turn, by `loop` where there is one.

    There is one launch per offset in the buffers: successive operations use successive pieces.
    """
    turn = iterations(engine, control, launches, spec, spec.iters)
    if loop is not None and can_loop(spec):
        return _run_by_loop(engine, control, (launches[0], turn), spec, progress, loop)
    operations = max(spec.iters * spec.agg_iters, 1)
    if spec.cudagraph > 0:
        replay = engine.capture(list(itertools.islice(itertools.cycle(turn), spec.iters)))
        turn, count, operations = [replay], spec.cudagraph, operations * spec.cudagraph
    else:
        count = spec.iters
    # This is as fast as a slice, and the watchdog can read how many are left.
    remaining = itertools.repeat(True, count)
    progress.batch_count = partial(operator.length_hint, remaining)
    counted = itertools.compress(itertools.cycle(turn), remaining)
    enqueue = _enqueue_with_barriers if spec.blocking == BARRIER_OUTSIDE else _enqueue
    # With check_timed, an untimed operation would write what only timed ones should write.
    if not spec.check_timed:
        # It comes last, so that the loop begins with its code in the caches, as it does in C.
        launches[0]()
        engine.synchronize(spec.timeout)
    control.barrier()
    start = engine.clock()
    outside = enqueue(engine, control, counted, spec)
    enqueued = engine.clock()
    engine.synchronize(spec.timeout)
    total = engine.clock() - start - outside
    progress.batch_count = no_batch
    progress.done += 1 if engine.asynchronous else count
    timing = Timing(total / operations, (enqueued - start - outside) / operations)
    if spec.per_iter_timing and not spec.cudagraph:
        timing.samples_s = _samples(engine, spec)
    return timing


def can_loop(spec: SweepSpec) -> bool:
    """Whether the operations of this sweep follow each other without anything that needs Python:
    the waits and barriers of -z, and the graphs of -G.
    """
    return not spec.blocking and spec.cudagraph <= 0


def _run_by_loop(
    engine: Engine,
    control: Control,
    operations: tuple[Launch, Sequence[Launch]],
    spec: SweepSpec,
    progress: Progress,
    loop: Loop,
) -> Timing:
    """The same steps by a loop without Python. `operations` are the untimed one and the turn."""
    untimed, turn = operations
    program = loop.program(_parts(turn, spec), wait=True)
    progress.batch_count = program.iterations_left
    if not spec.check_timed:
        loop.program([untimed, ProgramMarker.END], wait=True).run(1)
    control.barrier()
    ran = program.run(spec.iters)
    progress.batch_count = no_batch
    progress.done += 1 if engine.asynchronous else spec.iters
    count = max(spec.iters * spec.agg_iters, 1)
    timing = Timing((ran.end_s - ran.start_s) / count, (ran.enqueued_s - ran.start_s) / count)
    if spec.per_iter_timing:
        timing.samples_s = _samples(engine, spec)
    return timing


def _parts(turn: Sequence[Launch], spec: SweepSpec) -> list[Part]:
    """The turn as parts of a program; with -I all iterations, as each has its own marks."""
    if not spec.per_iter_timing:
        return [part for iteration in turn for part in (iteration, ProgramMarker.END)]
    parts: list[Part] = [Mark(0)]
    for number, iteration in enumerate(itertools.islice(itertools.cycle(turn), spec.iters), 1):
        parts += [iteration, Mark(number), ProgramMarker.END]
    return parts if spec.iters else [*parts, ProgramMarker.END]


def iterations(
    engine: Engine, control: Control, launches: Sequence[Launch], spec: SweepSpec, iters: int
) -> list[Launch]:
    """The iterations as functions to call in turn, at most `iters`.

    Each runs m operations in a group, with the waits of -z. They are created before the clock
    starts: on CPUs an operation takes 2 us, and choosing the next one would add a tenth.
    """
    size, count = spec.agg_iters, len(launches)
    if size == 1:
        return [_with_waits(engine, control, [launch], spec) for launch in launches]
    # Operation k of the run uses offset k modulo their number, so groups repeat only after `turns`
    # iterations.
    turns = count // math.gcd(count, size)
    operations = itertools.cycle(launches)
    groups = [list(itertools.islice(operations, size)) for _ in range(min(turns, max(iters, 1)))]
    return [_with_waits(engine, control, group, spec) for group in groups]


def _with_waits(
    engine: Engine, control: Control, group: Sequence[Launch], spec: SweepSpec
) -> Launch:
    if not spec.blocking or spec.blocking == BARRIER_OUTSIDE:
        return engine.grouped(group) if len(group) > 1 else group[0]

    def run() -> None:
        for launch in group:
            launch()
            engine.synchronize(spec.timeout)
            if spec.blocking == SYNC_AND_BARRIER:
                control.barrier()

    return run


def _enqueue(
    engine: Engine, control: Control, iterations: Iterable[Launch], spec: SweepSpec
) -> float:
    """Run all iterations; returns the seconds to subtract: 0."""
    if not spec.per_iter_timing or spec.cudagraph:
        for iteration in iterations:
            iteration()
        return 0.0
    mark = engine.mark
    mark(0)
    for number, iteration in enumerate(iterations, 1):
        iteration()
        mark(number)
    return 0.0


def _enqueue_with_barriers(
    engine: Engine, control: Control, iterations: Iterable[Launch], spec: SweepSpec
) -> float:
    """Run each iteration to its end, then a barrier; returns the barriers' seconds, to subtract."""
    outside = 0.0
    for number, iteration in enumerate(iterations):
        if spec.per_iter_timing:
            engine.mark(2 * number)
        iteration()
        if spec.per_iter_timing:
            engine.mark(2 * number + 1)
        engine.synchronize(spec.timeout)
        before = engine.clock()
        control.barrier()
        outside += engine.clock() - before
    return outside


def _samples(engine: Engine, spec: SweepSpec) -> list[float]:
    """Each iteration's longest duration over the local ranks, per operation."""
    paired = spec.blocking == BARRIER_OUTSIDE
    marks = [(2 * i, 2 * i + 1) if paired else (i, i + 1) for i in range(spec.iters)]
    return [max(engine.elapsed_s(first, last)) / spec.agg_iters for first, last in marks]


def over_ranks(control: Control, seconds: float, average: int) -> float:
    """Combine the times of all processes by -a: 0 process 0's, 1 mean, 2 smallest, 3 largest."""
    if average == 0:
        return float(control.bcast(seconds))
    how = {1: "sum", 2: "min", 3: "max"}.get(average, "sum")
    value = control.reduce_all([seconds], how)[0]
    return value / control.processes if how == "sum" else value
