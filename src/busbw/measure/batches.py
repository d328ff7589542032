"""Batches of timed operations, each rank's duration of each: on device queues between marks, on CPUs by a common clock."""

import itertools
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from busbw.core.errors import NoMeasurement
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Control, Engine, Launch
from busbw.measure.clocks import Clocks
from busbw.measure.progress import Progress

BLOCKING = ("CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT")
SHORTEST_S = 1e-9
MOST_HELD = 32  # operations enqueued before any runs; queues of a GPU hold about a thousand entries
LEAD_S, MOST_LEAD = 300e-6, 8  # untimed operations that bring caches and links into the state of a long series
TRAIL = 8  # untimed fences behind the last operation: the last four of a queue run 2 to 4 % slower
TRAIL_UP_TO_S = 1e-3  # where that would show
TICKS = 64  # durations of nothing that are looked at
FINEST_TICK_S = 1e-9  # below it two durations are the same, but for rounding
SLACK = 1.5  # a slot of the common clock, in durations of an operation,
SLOT_MARGIN_S = 100e-6  # and for ranks that wake up late


@dataclass(slots=True)
class Taken:
    """One batch. durations_s[k][i] is local rank k's time in operation i, late_s[k][i] how long after the first rank it began.

    launch_s[i] is what the host took to enqueue it, empty where a launch completes the operation.
    """

    durations_s: list[list[float]] = field(default_factory=list)
    late_s: list[list[float]] = field(default_factory=list)
    launch_s: list[float] = field(default_factory=list)


class Batches(Protocol):
    """A way to time operations, by a clock that counts in `tick_s`; 0 where that is far finer than operations vary.

    What it completes it notes in `progress`.
    """

    tick_s: float
    progress: Progress

    def take(self, launches: Sequence[Launch], usual_s: float) -> Taken:
        """Run and time the launches, one operation each, in step with all other processes; `usual_s`, the same on all, is about how long
        one takes.
        """


class HeldBatches:
    """Operations of a device queue, all enqueued before the first runs, so that no host's speed is in their times.

    Before each stands a fence, one or two tiny collectives: ranks enter the operation as closely as they leave those. Their number is
    random, alike on all ranks, because a library's buffers are used in turn and turns differ by more than 1 %.
    """

    def __init__(self, engine: Engine, spec: SweepSpec) -> None:
        blocking = [name for name in BLOCKING if os.environ.get(name, "0") not in ("", "0")]
        if blocking:
            raise NoMeasurement(
                f"{blocking[0]}={os.environ[blocking[0]]}: launches would wait for a queue that is held",
                f"unset {blocking[0]}, or use --timing classic",
            )
        self._engine, self._limit_s = engine, spec.timeout
        self.progress = Progress(0)
        self._most = max(MOST_HELD // spec.agg_iters, 1)
        self._fence = engine.fence()
        self._fence()  # what it sets up must not wait in a held queue
        engine.synchronize(spec.timeout)
        self.tick_s = self._tick()
        self._costs = engine.name != "sim"  # a simulated launch costs nothing
        self._random = random.Random(1)

    def _tick(self) -> float:
        """The smallest difference between durations of nothing: a GPU's clock counts in 32 ns."""
        for number in range(TICKS):
            self._engine.mark(2 * number)
            self._engine.mark(2 * number + 1)
        self._engine.synchronize(self._limit_s)
        every = sorted(seconds for number in range(TICKS) for seconds in self._engine.elapsed_s(2 * number, 2 * number + 1))
        return min((after - before for before, after in itertools.pairwise(every) if after - before > FINEST_TICK_S), default=0.0)

    def take(self, launches: Sequence[Launch], usual_s: float) -> Taken:
        """At most MOST_HELD operations at a time, or one group."""
        taken = Taken([[] for _ in self._engine.ranks])
        for start in range(0, len(launches), self._most):
            self._held(launches[start : start + self._most], usual_s, taken)
        return taken

    def _held(self, launches: Sequence[Launch], usual_s: float, taken: Taken) -> None:
        engine, clock, fence = self._engine, time.perf_counter, self._fence
        lead = min(round(LEAD_S / max(usual_s, SHORTEST_S)), MOST_LEAD, self._most)
        with engine.held():
            for number in range(lead):
                fence()
                launches[-1 - number % len(launches)]()
            for number, launch in enumerate(launches):
                for _ in range(self._random.randint(1, 2)):
                    fence()
                engine.mark(2 * number)
                start = clock()
                launch()
                if self._costs:
                    taken.launch_s.append(clock() - start)
                engine.mark(2 * number + 1)
            for _ in range(TRAIL if usual_s < TRAIL_UP_TO_S else 0):
                fence()
        engine.synchronize(self._limit_s)
        self.progress.done += 1
        times = [engine.elapsed_s(2 * number, 2 * number + 1) for number in range(len(launches))]
        for rank, column in enumerate(zip(*times, strict=True)):
            taken.durations_s[rank].extend(column)


class ClockedBatches:
    """Operations that are complete when their launch returns: every one begins at a time agreed beforehand, by synchronised clocks.

    Clocks are compared anew for every batch, so that their drift does not count. `late_s` is a delay on purpose. A rank that comes too
    late for its time starts at once, and its lateness is seen; so is that of a rank that the scheduler had put aside.
    """

    def __init__(self, control: Control, late_s: float = 0.0) -> None:
        self._control, self._late_s = control, late_s
        self.tick_s = 0.0
        self.progress = Progress(0)
        self._clocks = Clocks(control)

    def take(self, launches: Sequence[Launch], usual_s: float) -> Taken:
        """One slot of the clock after the other."""
        clock = time.perf_counter
        ahead = self._clocks.offset_s()
        slot = SLACK * usual_s + SLOT_MARGIN_S
        lead = self._lead_s()
        begin = float(self._control.bcast(clock() + lead)) - ahead
        starts: list[float] = []
        ends: list[float] = []
        self.progress.batch = ends
        for number, launch in enumerate(launches):
            _until(begin + number * slot)
            if self._late_s:
                _until(clock() + self._late_s)
            starts.append(clock())
            launch()
            ends.append(clock())
        self.progress.batch, self.progress.done = (), self.progress.done + len(ends)
        durations = [end - start for start, end in zip(starts, ends, strict=True)]
        shared = [start + ahead for start in starts]
        earliest = [-value for value in self._control.reduce_all([-start for start in shared], "max")]
        return Taken([durations], [[start - first for start, first in zip(shared, earliest, strict=True)]])

    def _lead_s(self) -> float:
        """Until the message with the common start has reached all: ten barriers' time, measured anew each batch."""
        start = time.perf_counter()
        self._control.barrier()
        return 10 * (time.perf_counter() - start) + SLOT_MARGIN_S


def _until(moment: float) -> None:
    """Wait for a time of this clock: asleep while it is far, then awake, but letting others run who share the processor."""
    left = moment - time.perf_counter()
    if left > 1e-3:
        time.sleep(left - 5e-4)
    while time.perf_counter() < moment:
        os.sched_yield()
