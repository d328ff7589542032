"""The classic loop: what nccl-tests times, in the order in which it does.

One untimed operation, a barrier, then n iterations of m operations enqueued back to back, and one wait at the end. So `time` is a
pipelined mean by the host's clock, not a latency: small sizes show whichever is longer, enqueueing or running.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from busbw.core.sweep import SweepSpec
from busbw.engines.base import Control, Engine, Launch

SYNC_AND_BARRIER, SYNC_ONLY, BARRIER_OUTSIDE = 1, 2, 3


@dataclass(slots=True)
class Timing:
    """Seconds per operation: of this process' clock, of enqueueing alone, and of each iteration where -I asked for it."""

    time_s: float
    cpu_time_s: float
    samples_s: list[float] = field(default_factory=list)


def run(engine: Engine, control: Control, launches: Sequence[Launch], spec: SweepSpec) -> Timing:
    """Time `spec.iters` iterations that take `launches` in turn (one per buffer position)."""
    if spec.cudagraph:
        steps = [launches[i % len(launches)] for i in range(spec.iters) for _ in range(spec.agg_iters)]
        iterations = [engine.capture(steps)] * spec.cudagraph
        operations = max(len(steps) * spec.cudagraph, 1)
    else:
        iterations = _iterations(engine, control, launches, spec)
        operations = max(spec.iters * spec.agg_iters, 1)
    enqueue = _enqueue_with_barriers if spec.blocking == BARRIER_OUTSIDE else _enqueue
    control.barrier()
    start = engine.clock()
    outside = enqueue(engine, control, iterations, spec)
    enqueued = engine.clock()
    engine.synchronize(spec.timeout)
    total = engine.clock() - start - outside
    timing = Timing(total / operations, (enqueued - start - outside) / operations)
    if spec.per_iter_timing and not spec.cudagraph:
        timing.samples_s = _samples(engine, spec)
    return timing


def _iterations(engine: Engine, control: Control, launches: Sequence[Launch], spec: SweepSpec) -> list[Launch]:
    """Every iteration as one thunk: m operations in one group, and what -z asks for after them.

    Made before the clock starts: on CPUs an operation takes 2 us, and choosing the next one would be a tenth of that.
    """
    steps = [engine.grouped([launch] * spec.agg_iters) if spec.agg_iters > 1 else launch for launch in launches]
    if spec.blocking and spec.blocking != BARRIER_OUTSIDE:
        steps = [_blocking(engine, control, step, spec) for step in steps]
    return [steps[i % len(steps)] for i in range(spec.iters)]


def _blocking(engine: Engine, control: Control, step: Launch, spec: SweepSpec) -> Launch:
    def run() -> None:
        step()
        engine.synchronize(spec.timeout)
        if spec.blocking == SYNC_AND_BARRIER:
            control.barrier()

    return run


def _enqueue(engine: Engine, control: Control, iterations: Sequence[Launch], spec: SweepSpec) -> float:
    """Run all iterations; returns seconds that do not count: none."""
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


def _enqueue_with_barriers(engine: Engine, control: Control, iterations: Sequence[Launch], spec: SweepSpec) -> float:
    """Run each iteration to its end, then a barrier; returns the barriers' seconds, which do not count."""
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
    """Each iteration's longest duration over the local ranks."""
    paired = spec.blocking == BARRIER_OUTSIDE
    marks = [(2 * i, 2 * i + 1) if paired else (i, i + 1) for i in range(spec.iters)]
    return [max(engine.elapsed_s(first, last)) / spec.agg_iters for first, last in marks]


def over_ranks(control: Control, seconds: float, average: int) -> float:
    """One figure from every process' own: -a 0 process 0's, 1 mean, 2 smallest, 3 largest."""
    if average == 0:
        return float(control.bcast(seconds))
    how = {1: "sum", 2: "min", 3: "max"}.get(average, "sum")
    value = control.reduce_all([seconds], how)[0]
    return value / control.size if how == "sum" else value
