"""Batches of operations, each timed on every rank: between marks on device queues, by a common
clock on CPUs.

The common clock is the monotonic clock of process 0. The offset of each other host's clock is
measured over the control channel: processes pair up in log2(p) rounds as in HCA (Hunold and
Carpen-Amarie 2018). In round k process r + 2^k learns its offset from process r, which already
knows its own. The fastest of several round trips bounds the error by half its duration. Drift, at
worst about 10 us per second, is ignored because offsets are measured for every batch.
"""

import itertools
import os
import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol

from busbw.core.errors import NoMeasurement
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Engine, Launch
from busbw.engines.program import Loop, Mark, Part, ProgramMarker
from busbw.launch.control import Control
from busbw.measure.progress import Progress, no_batch

ROUND_TRIPS = 20
BLOCKING_VARIABLES = ("CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT")
SHORTEST_S = 1e-9
# Operations enqueued before the first runs. A GPU queue holds about a thousand entries.
MAX_HELD = 32
# Untimed operations that put caches and links into the state of a long series.
LEAD_IN_S, MAX_LEAD_IN = 300e-6, 8
ENQUEUE_S = 30e-6  # an operation with its fence and marks
# Untimed fences after the last operation: the last four entries of a queue run 2 to 4 % slower.
TRAILING_OPERATIONS = 8
TRAIL_UP_TO_S = 1e-3  # longer operations do not show that
TICK_SAMPLES = 64  # empty intervals from which the clock's resolution is read
FINEST_TICK_S = 1e-9  # smaller differences are rounding errors
SLOT_DURATIONS = 1.5  # length of a slot of the common clock, in typical durations
SLOT_MARGIN_S = 100e-6  # added to a slot for ranks that wake up late
# Untimed slots at the head of a batch, as caches hold the data of another size.
WARM_S, MAX_WARM = 1e-3, 8


@lru_cache(maxsize=1)
def identity() -> str:
    """An id of the monotonic clock, equal where processes share it: the boot and time namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:  # Linux before 5.6
        return boot


class Clocks:
    """The clocks of a job's processes, with a channel for every pair.

    The constructor and `offset_s` are collective.
    """

    def __init__(self, control: Control) -> None:
        self._pairs: list[Control | None] = []  # this process' partner in each round
        if len(set(control.allgather(identity()))) == 1:
            return
        process, processes = control.process, control.processes
        reach = 1
        while reach < processes:
            partner = process + reach if process < reach else process - reach
            paired = process < 2 * reach and partner < processes
            pair = control.split(min(process, partner) if paired else processes)
            self._pairs.append(pair if paired else None)
            reach *= 2

    def offset_s(self) -> float:
        """Seconds from this process' perf_counter to process 0's; 0.0 if all share one clock."""
        offset_s = 0.0
        for pair in self._pairs:
            if pair is not None:
                offset_s = _learn_offset_s(pair, offset_s)
        return offset_s


def _learn_offset_s(pair: Control, known_s: float) -> float:
    """This process' offset, which process 1 of the pair learns from process 0.

    `known_s` is the offset of process 0 of the pair, on that process.
    """
    shortest, difference = float("inf"), known_s
    for _ in range(ROUND_TRIPS):
        start = time.perf_counter()
        pair.bcast(None)
        clocks = pair.gather(time.perf_counter())
        trip = time.perf_counter() - start
        if clocks is not None and trip < shortest:
            shortest, difference = trip, start + trip / 2 - clocks[1]
    offset = sum(pair.bcast((difference, known_s)))
    return known_s if pair.process == 0 else float(offset)


@dataclass(slots=True)
class BatchTimes:
    """One batch in seconds.

    `durations_s[k][i]`: operation i on local rank k. `late_s[k][i]`: its start after that of the
    first rank. `launch_s[i]`: the time to enqueue operation i; empty if a launch completes the
    operation.
    """

    durations_s: list[list[float]] = field(default_factory=list)
    late_s: list[list[float]] = field(default_factory=list)
    launch_s: list[float] = field(default_factory=list)


class Batches(Protocol):
    """A way to time operations.

    `tick_s` is the clock's resolution, 0 if it is negligible. `launched` counts the launches so
    far, the untimed ones included. `progress` counts completed operations.
    """

    tick_s: float
    launched: int
    progress: Progress

    def each_s(self, estimate_s: float) -> float:
        """Seconds that one operation takes in a batch, if it alone takes `estimate_s`."""

    def untimed(self, estimate_s: float) -> int:
        """How many operations of this duration a batch runs before the timed ones."""

    def take(self, launches: Sequence[Launch], estimate_s: float) -> BatchTimes:
        """Run and time the launches in step with all processes.

        `estimate_s` is the expected duration of one, the same on all processes.
        """


class HeldBatches:
    """Operations on a device queue, all enqueued before the first runs, so that the host's speed
    does not affect their times.

    Each follows a fence of one or two tiny collectives, so that all ranks start it close together.
    The number is random, the same on all ranks, because the library alternates between buffers
    whose times differ by more than 1 %.

    With `graphs` each operation is some CUDA graphs. Launching one blocks while the queue is held,
    so it is not held then: an untimed operation runs while the timed ones are enqueued.
    """

    def __init__(
        self, engine: Engine, spec: SweepSpec, loop: Loop | None = None, *, graphs: bool = False
    ) -> None:
        """Operations are enqueued by `loop` where there is one, or else from Python."""
        blocking = [
            name for name in BLOCKING_VARIABLES if os.environ.get(name, "0") not in ("", "0")
        ]
        if blocking:
            message = (
                f"{blocking[0]}={os.environ[blocking[0]]} makes each launch wait for the queue,"
                " which is held until all are enqueued"
            )
            raise NoMeasurement(message, f"unset {blocking[0]}, or use --timing classic")
        self._engine, self._limit_s, self._loop = engine, spec.timeout, loop
        self._hold = nullcontext if graphs else engine.held
        self._least_lead_in = 1 if graphs else 0
        self.progress, self.launched = Progress(0), 0
        self._max_held = max(MAX_HELD // spec.agg_iters, 1)
        self._fence = engine.fence()
        self._fence()  # its setup must not wait in a held queue
        engine.synchronize(spec.timeout)
        self.tick_s = self._tick()
        self._costs = engine.name != "sim"  # a simulated launch costs nothing
        self._random = random.Random(1)
        self._clocks_s: list[float] = []

    def _tick(self) -> float:
        """The smallest difference between empty intervals: 32 ns on a GPU."""
        for number in range(TICK_SAMPLES):
            self._engine.mark(2 * number)
            self._engine.mark(2 * number + 1)
        self._engine.synchronize(self._limit_s)
        intervals: list[float] = []
        for number in range(TICK_SAMPLES):
            intervals += self._engine.elapsed_s(2 * number, 2 * number + 1)
        intervals.sort()
        differences = [after - before for before, after in itertools.pairwise(intervals)]
        return min((value for value in differences if value > FINEST_TICK_S), default=0.0)

    def each_s(self, estimate_s: float) -> float:
        """See Batches: the operation, a fence, and the time to enqueue both."""
        return estimate_s + ENQUEUE_S

    def untimed(self, estimate_s: float) -> int:
        lead_in = min(round(LEAD_IN_S / max(estimate_s, SHORTEST_S)), MAX_LEAD_IN, self._max_held)
        return max(lead_in, self._least_lead_in)

    def take(self, launches: Sequence[Launch], estimate_s: float) -> BatchTimes:
        """See Batches. At most MAX_HELD operations, or one group, are held at a time."""
        taken = BatchTimes([[] for _ in self._engine.ranks])
        for start in range(0, len(launches), self._max_held):
            self._take_held(launches[start : start + self._max_held], estimate_s, taken)
        return taken

    def _take_held(self, launches: Sequence[Launch], estimate_s: float, taken: BatchTimes) -> None:
        engine, lead_in = self._engine, self.untimed(estimate_s)
        parts = self._parts(launches, lead_in, estimate_s)
        program = self._loop.program(parts, wait=False) if self._loop else None
        calls = [] if program else self._calls(parts)
        clocks_s = self._clocks_s
        clocks_s.clear()
        with self._hold():
            if program:
                clocks_s.extend(program.run(1).clocks_s)
            for call in calls:
                call()
        engine.synchronize(self._limit_s)
        self.progress.done += 1
        self.launched += lead_in + len(launches)
        if self._costs:
            starts_and_ends = zip(clocks_s[::2], clocks_s[1::2], strict=True)
            taken.launch_s += [end - start for start, end in starts_and_ends]
        times = [engine.elapsed_s(2 * number, 2 * number + 1) for number in range(len(launches))]
        for rank, column in enumerate(zip(*times, strict=True)):
            taken.durations_s[rank].extend(column)

    def _parts(self, launches: Sequence[Launch], lead_in: int, estimate_s: float) -> list[Part]:
        """What is enqueued: untimed operations, the timed ones with marks, and untimed fences."""
        fence, parts = self._fence, list[Part]()
        for number in range(lead_in):
            parts += [fence, launches[-1 - number % len(launches)]]
        for number, launch in enumerate(launches):
            parts += [fence] * (1 + self._random.getrandbits(1))
            parts += [
                Mark(2 * number),
                ProgramMarker.CLOCK,
                launch,
                ProgramMarker.CLOCK,
                Mark(2 * number + 1),
            ]
        trailing = TRAILING_OPERATIONS if estimate_s < TRAIL_UP_TO_S else 0
        return [*parts, *[fence] * trailing, ProgramMarker.END]

    def _calls(self, parts: Sequence[Part]) -> list[Launch]:
        """The parts as functions of Python, for an engine without a loop."""
        clock, note, mark = time.perf_counter, self._clocks_s.append, self._engine.mark

        def note_clock() -> None:
            note(clock())

        calls: list[Launch] = []
        for part in parts:
            if isinstance(part, Mark):
                calls.append(partial(mark, part.index))
            elif not isinstance(part, ProgramMarker):
                calls.append(part)
            elif part is ProgramMarker.CLOCK and self._costs:
                calls.append(note_clock)
        return calls


class HostClockBatches:
    """Operations that are complete when their launch returns: each starts at an agreed time of
    synchronized clocks.

    Clocks are synchronized for every batch, so that drift does not matter. `late_s` is an injected
    delay. A rank that misses its time, for example because the scheduler suspended it, starts
    immediately, and its lateness is recorded.
    """

    def __init__(self, control: Control, late_s: float = 0.0) -> None:
        self._control, self._late_s = control, late_s
        self.tick_s = 0.0
        self.progress, self.launched = Progress(0), 0
        self._clocks = Clocks(control)

    def each_s(self, estimate_s: float) -> float:
        """See Batches: a time slot."""
        return SLOT_DURATIONS * estimate_s + SLOT_MARGIN_S

    def untimed(self, estimate_s: float) -> int:
        return min(int(WARM_S / self.each_s(estimate_s)), MAX_WARM)

    def take(self, launches: Sequence[Launch], estimate_s: float) -> BatchTimes:
        """See Batches. Each operation has its own time slot."""
        clock = time.perf_counter
        ahead = self._clocks.offset_s()
        slot = self.each_s(estimate_s)
        before = clock()
        self._control.barrier()
        # Ten barriers are enough for the message with the common start to reach all ranks.
        common_start = clock() + 10 * (clock() - before) + SLOT_MARGIN_S
        begin = float(self._control.bcast(common_start)) - ahead
        warm = self.untimed(estimate_s)
        starts: list[float] = []
        ends: list[float] = []
        self.progress.batch_count = partial(len, ends)
        untimed = itertools.islice(itertools.cycle(launches), warm)
        for number, launch in enumerate(itertools.chain(untimed, launches)):
            _until(begin + number * slot)
            if self._late_s:
                _until(clock() + self._late_s)
            starts.append(clock())
            launch()
            ends.append(clock())
        self.progress.batch_count = no_batch
        self.progress.done += len(ends)
        self.launched += len(ends)
        durations = [end - start for start, end in zip(starts[warm:], ends[warm:], strict=True)]
        common_starts = [start + ahead for start in starts[warm:]]
        earliest = self._control.reduce_all(common_starts, "min")
        late = [start - first for start, first in zip(common_starts, earliest, strict=True)]
        return BatchTimes([durations], [late])


def _until(moment: float) -> None:
    """Wait for a time of this clock: sleep, then poll, yielding to processes on the same core."""
    left = moment - time.perf_counter()
    if left > 1e-3:
        time.sleep(left - 5e-4)
    while time.perf_counter() < moment:
        os.sched_yield()
