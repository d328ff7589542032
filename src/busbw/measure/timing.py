"""The classic loop: what nccl-tests times, in the order in which it does.

One untimed operation, a barrier, then n iterations of m operations enqueued back to back, and one wait at the end. So `time` is a
pipelined mean by the host's clock, not a latency: small sizes show whichever is longer, enqueueing or running.
"""

from collections.abc import Callable, Sequence
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
    rounds = spec.cudagraph or 1
    iteration = _iteration(engine, control, launches, spec)
    if spec.cudagraph:
        steps = [launches[i % len(launches)] for i in range(spec.iters) for _ in range(spec.agg_iters)]
        replay = engine.capture(steps)
    control.barrier()
    start = engine.clock()
    outside = 0.0
    if spec.cudagraph:
        for _ in range(rounds):
            replay()
    else:
        outside = _enqueue(engine, control, iteration, spec)
    enqueued = engine.clock()
    engine.synchronize(spec.timeout)
    total = engine.clock() - start - outside
    operations = max(spec.iters * spec.agg_iters * rounds, 1)
    timing = Timing(total / operations, (enqueued - start - outside) / operations)
    if spec.per_iter_timing and not spec.cudagraph:
        timing.samples_s = _samples(engine, spec)
    return timing


def _iteration(engine: Engine, control: Control, launches: Sequence[Launch], spec: SweepSpec) -> Callable[[int], object]:
    """One iteration: m operations in one group, and what -z asks for after them."""
    count = len(launches)
    steps = [engine.grouped([launch] * spec.agg_iters) if spec.agg_iters > 1 else launch for launch in launches]
    if not spec.blocking or spec.blocking == BARRIER_OUTSIDE:
        return lambda i: steps[i % count]()

    def blocking(i: int) -> None:
        steps[i % count]()
        engine.synchronize(spec.timeout)
        if spec.blocking == SYNC_AND_BARRIER:
            control.barrier()

    return blocking


def _enqueue(engine: Engine, control: Control, iteration: Callable[[int], object], spec: SweepSpec) -> float:
    """Run all iterations; returns seconds that do not count (the barriers of -z 3)."""
    iters = spec.iters
    if spec.blocking == BARRIER_OUTSIDE:
        return _enqueue_with_barriers(engine, control, iteration, spec)
    if not spec.per_iter_timing:
        for i in range(iters):
            iteration(i)
        return 0.0
    mark = engine.mark
    mark(0)
    for i in range(iters):
        iteration(i)
        mark(i + 1)
    return 0.0


def _enqueue_with_barriers(engine: Engine, control: Control, iteration: Callable[[int], object], spec: SweepSpec) -> float:
    outside = 0.0
    for i in range(spec.iters):
        if spec.per_iter_timing:
            engine.mark(2 * i)
        iteration(i)
        if spec.per_iter_timing:
            engine.mark(2 * i + 1)
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
