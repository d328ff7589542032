"""One cell of a sweep on one process: check the data and time the operation, in step with the
other processes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

from busbw.core.ran import Kernel
from busbw.core.result import Cell, Mismatch
from busbw.core.sizes import short_size
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.base import Call, Engine, Launch, Probe
from busbw.engines.program import Loop
from busbw.launch.control import Control
from busbw.measure import adaptive_timing, timing, verification
from busbw.measure.batches import MAX_HELD, MAX_LEAD_IN, Batches, HeldBatches, HostClockBatches
from busbw.measure.host_sampler import HostSampler
from busbw.measure.plan import Calls
from busbw.measure.progress import Progress
from busbw.measure.what_ran import Recorder
from busbw.stats.sampling import first

MISMATCHES_KEPT = 8  # per cell; the count of wrong elements is always complete
MAX_POSITIONS = 4096  # buffer positions that a cell uses in turn; more would only cost memory
PRECISE_POSITIONS = 8  # with precise timing
UNTIMED_OPERATIONS = 3  # operations before the first visit: the shortest tells how long one takes
# visits after which an operation is run untimed even if it seems long: they may have been disturbed
MAX_RETRIED_VISITS = 2
# a longer operation is not affected by the one before it: a GPU's caches are filled again in 20 us
LONG_S = 5e-3


class Begin(Protocol):
    """A function to call before each phase."""

    def __call__(self, phase: str, detail: str, size: int, operations: int, /) -> Progress:
        """The `operations` of a device queue are awaited together, others one by one."""


@dataclass
class Setup:
    """What all cells of a sweep share.

    `world` connects all processes; `group` only those of this communicator.
    """

    engine: Engine
    world: Control
    group: Control
    spec: SweepSpec
    max_bytes: int
    host_sampler: HostSampler
    begin: Begin
    late_s: float = 0.0
    loop: Loop | None = None
    recorder: Recorder | None = None
    batches: Batches | None = field(default=None, init=False)
    # ranks of different groups do not wait for each other
    group_id: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Prepare the batches of precise timing."""
        if self.spec.sampling:
            if self.engine.asynchronous:
                self.batches = HeldBatches(self.engine, self.spec, self.loop)
            else:
                self.batches = HostClockBatches(self.world, self.late_s)
            self.group_id = int(self.group.bcast(self.world.process))

    @property
    def iters(self) -> int:
        """Operations that are guaranteed to be timed: data verified afterwards must come from
        them.
        """
        sampling = self.spec.sampling
        return min(sampling.fixed or PRECISE_POSITIONS, MAX_HELD) if sampling else self.spec.iters

    @property
    def awaited_together(self) -> int:
        """The operations in a device queue whose end is awaited."""
        spec = self.spec
        launches = MAX_HELD + MAX_LEAD_IN if spec.sampling else spec.iters * max(spec.cudagraph, 1)
        return launches * spec.agg_iters

    def largest(self, value: float) -> float:
        """The largest value over all processes, the same on each."""
        return self.world.reduce_all([value], "max")[0]

    def throttled(self) -> bool:
        """Whether heat or a power brake slowed a GPU of any host since this was last asked."""
        return self.largest(float(self.host_sampler.throttled_since_last())) > 0


class CellRun:
    """A cell while it is measured.

    Call `check` first. Then call `time_once`, or with precise timing `visit` while `more` is above
    0, and `finish`. These are collective. `cell` is what was measured.

    `operations` counts those of each rank, the untimed ones included. `check_s`, `visit_s` and
    `operation_s` are the seconds of the check, of the last timing and of one operation.
    `bad_rounds` counts the checks that found wrong data. `ran` is what NCCL ran, on process 0.
    """

    def __init__(self, setup: Setup, calls: Calls, size: int, *, in_place: bool) -> None:
        self.setup, self.calls, self.size = setup, calls, size
        self.call = calls.at(size, in_place=in_place)
        self.label = f"{short_size(size)} {'in place' if in_place else 'out of place'}"
        self.operations, self.bad_rounds = 0, 0
        self.check_s = self.visit_s = self.operation_s = 0.0
        self._launch = setup.engine.bind(self.call)
        defined = not in_place or calls.collective.in_place_checked
        checked = setup.spec.check > 0 and defined and setup.engine.moves_data(self.call)
        self._tally = verification.Tally() if checked else None
        self._wrong: tuple[int, list[Mismatch]] | None = None
        self._visiting: adaptive_timing.Visiting | None = None
        self._classic: Cell | None = None
        self.ran: Kernel | None = None

    @property
    def more(self) -> int:
        """The number of samples of the next visit, 0 after the last one."""
        return self._visiting.more if self._visiting else 0

    def check(self) -> None:
        """Verify operations until a rank finds wrong data.

        With precise timing run untimed ones too, so that none follows a check.
        """
        began, checked_s = time.perf_counter(), 0.0
        if self._tally:
            progress = self.setup.begin("verify", self.label, self.size, 1)
            checked_s = self._check_rounds(self._tally, progress)
        self.check_s = time.perf_counter() - began
        sampling = self.setup.spec.sampling
        if sampling:
            checked_s = self.setup.largest(checked_s)
            shortest_s = min(self._untimed_s(checked_s) for _ in range(UNTIMED_OPERATIONS))
            self.operation_s = self.setup.largest(shortest_s)
            self._visiting = self._prepare_visits(sampling)

    def time_once(self) -> None:
        """Classic timing, and the check of what was timed."""
        began = time.perf_counter()
        targets = self._targets()
        probe = self._write_timed(targets)
        progress = self.setup.begin("timing", self.label, self.size, self.setup.awaited_together)
        launches = [self.setup.engine.bind(target) for target in targets]
        self._classic = self._time(launches, progress)
        if probe:
            self._check_timed(probe, targets)
        self.setup.world.barrier()
        self._share()
        self._record()
        self.visit_s = time.perf_counter() - began
        self.operation_s = self.visit_s / max(self.setup.spec.iters, 1)

    def visit(self) -> None:
        """One visit of precise timing; the first also checks what was timed, and shares the
        counts of wrong elements.
        """
        began = time.perf_counter()
        setup, state = self.setup, self._visiting
        assert state is not None and setup.batches is not None and setup.spec.sampling is not None
        is_first = not state.visited
        targets = self._targets() if is_first else []
        probe = self._write_timed(targets) if is_first else None
        if probe:
            state.more = max(state.more, len(targets))
        progress = setup.begin("timing", self.label, self.size, setup.awaited_together)
        if not is_first and not self._is_undisturbed(state, setup.batches):
            untimed_s = setup.largest(self._once_untimed_s())
            state.estimate_s = min(state.estimate_s, untimed_s)
        setup.batches.progress = progress
        launched_before = setup.batches.launched
        adaptive_timing.visit(
            state, setup.batches, setup.world, setup.spec.sampling, setup.throttled, setup.group_id
        )
        launches = setup.batches.launched - launched_before
        self.operations += launches * setup.spec.agg_iters
        self.operation_s = state.estimate_s
        if probe:
            self._check_timed(probe, targets)
        if is_first:
            self._share()
            self._record()
        self.visit_s = time.perf_counter() - began

    def finish(self) -> None:
        """After the last visit: gather what only each process itself knows."""
        if self._visiting:
            adaptive_timing.finish(self._visiting, self.setup.world)

    def cell(self) -> Cell | None:
        """The cell, complete or so far, on process 0; not collective."""
        if self.setup.world.process != 0:
            return None
        cell = self._classic
        if self._visiting and self.setup.spec.sampling:
            spec = self.setup.spec
            cell = adaptive_timing.cell(
                self._visiting.measured,
                self.setup.spec.sampling,
                spec.agg_iters,
                self.calls.rates(self.call),
                synchronizes=spec.row.synchronizes,
                host_timed=not self.setup.engine.asynchronous,
                uneven=spec.row.uneven,
            )
        if cell is not None and self._wrong is not None:
            cell.wrong, cell.mismatches = self._wrong
        return cell

    def _check_rounds(self, tally: verification.Tally, progress: Progress) -> float:
        """Verify one operation per round; returns the seconds of the last operation."""
        took_s = [0.0]
        for number in range(self.setup.spec.check):
            probe = self._probe(number)
            wrong = verification.run_round(
                self.setup.engine, self.call, lambda: took_s.append(self._once_s()), probe
            )
            tally.add(self.setup.engine.ranks, wrong, probe)
            progress.done += 1
            if self.setup.spec.check > 1 and self.setup.largest(float(tally.bad_rounds)):
                break
        return took_s[-1]

    def _probe(self, number: int) -> Probe:
        # Sizes share a seed so that data can be reused; rounds differ so that data of an earlier
        # round cannot pass.
        return Probe(number + 1, self.call.dtype, self.call.op, self.setup.engine.size)

    def _untimed_s(self, known_s: float) -> float:
        """Run one untimed operation, so that no timed one directly follows a check or another size.

        Returns its seconds. `known_s` are those of an earlier one, the same on all processes. If
        they exceed LONG_S, nothing runs, and they are returned.
        """
        return known_s if known_s > LONG_S else self._once_untimed_s()

    def _is_undisturbed(self, state: adaptive_timing.Visiting, batches: Batches) -> bool:
        """Whether a visit needs no untimed operation after those of other sizes: it is long, or its
        batch begins with some.

        Not for the first visits, whose estimate may be of disturbed samples.
        """
        return state.visited > MAX_RETRIED_VISITS and (
            state.estimate_s > LONG_S or batches.untimed(state.estimate_s) > 0
        )

    def _once_untimed_s(self) -> float:
        progress = self.setup.begin("timing", self.label, self.size, 1)
        took_s = self._once_s()
        progress.done += 1
        return took_s

    def _once_s(self) -> float:
        began = time.perf_counter()
        self._launch()
        self.setup.engine.synchronize(self.setup.spec.timeout)
        self.operations += 1
        return time.perf_counter() - began

    def _targets(self) -> list[Call]:
        size_bytes = self.calls.moved_bytes(self.call)[0]
        positions = max(self.setup.max_bytes // size_bytes, 1) if size_bytes else 1
        operations = max(self.setup.iters * self.setup.spec.agg_iters, 1)
        return [
            self.calls.at(self.size, in_place=self.call.in_place, shift_bytes=size_bytes * number)
            for number in range(min(positions, operations, MAX_POSITIONS))
        ]

    def _prepare_visits(self, sampling: Sampling) -> adaptive_timing.Visiting:
        setup = self.setup
        launches = [setup.engine.bind(target) for target in self._targets()]
        iterations = timing.iterations(setup.engine, setup.world, launches, setup.spec, setup.iters)
        if setup.spec.agg_iters > 1:
            # an aggregated launch (ncclGroup) may use other paths, whose setup must not wait in a
            # held queue
            iterations[0]()
            setup.engine.synchronize(setup.spec.timeout)
            self.operations += setup.spec.agg_iters
        assert setup.batches is not None
        measured = adaptive_timing.Measured(tick_s=setup.batches.tick_s)
        return adaptive_timing.Visiting(
            cycle(iterations),
            first(sampling, setup.batches.each_s(self.operation_s)),
            self.operation_s,
            measured,
        )

    def _write_timed(self, targets: Sequence[Call]) -> Probe | None:
        """Write data into what is timed next, so that it can be checked afterwards; None if it
        is not to be checked.
        """
        setup = self.setup
        reduces_in_place = self.call.in_place and self.calls.collective.reduces
        if not setup.spec.check_timed or setup.iters <= 0 or reduces_in_place or not self._tally:
            return None
        probe = self._probe(setup.spec.check)
        progress = setup.begin("verify", self.label, self.size, 1)
        for target in targets:
            verification.write(setup.engine, target, probe)
            progress.done += 1
        return probe

    def _check_timed(self, probe: Probe, targets: Sequence[Call]) -> None:
        assert self._tally is not None
        progress = self.setup.begin("verify", self.label, self.size, 1)
        for target in targets:
            wrong = verification.check(self.setup.engine, target, probe)
            self._tally.add(self.setup.engine.ranks, wrong, probe)
            progress.done += 1

    def _time(self, launches: Sequence[Launch], progress: Progress) -> Cell:
        setup = self.setup
        times = timing.run(setup.engine, setup.world, launches, setup.spec, progress, setup.loop)
        time_s = timing.over_ranks(setup.world, times.time_s, setup.spec.average)
        cell = self.calls.rates(self.call).cell(max(time_s, adaptive_timing.SMALLEST_TIME_S))
        if setup.spec.report_cputime:
            cell.cpu_time_s = float(setup.world.bcast(times.cpu_time_s))
        by_process = setup.world.gather(times.samples_s) if times.samples_s else None
        if by_process is not None:
            cell.skipped = setup.spec.per_iter_skip
            cell.samples_s = [max(samples) for samples in zip(*by_process, strict=True)]
            cell.process_samples_s = by_process if len(by_process) > 1 else None
        return cell

    def _record(self) -> None:
        """Run one more operation, as those that were timed, of which NCCL says what it runs."""
        setup = self.setup
        if setup.recorder is None or not setup.recorder.running:
            return
        launches = [self._launch] * setup.spec.agg_iters
        launch = setup.engine.grouped(launches) if len(launches) > 1 else self._launch
        progress = setup.begin("timing", self.label, self.size, len(launches))
        self.ran = setup.recorder.record(launch, setup.spec.timeout)
        progress.done += 1
        self.operations += len(launches)

    def _share(self) -> None:
        """Add the counts of all processes."""
        tally = self._tally
        if tally is None:
            return
        tallies = self.setup.world.gather(
            (tally.wrong, tally.bad_rounds, tally.mismatches[:MISMATCHES_KEPT])
        )
        if tallies is None:
            return
        mismatches: list[Mismatch] = []
        for _, _, of_process in tallies:
            mismatches += of_process
        self._wrong = sum(wrong for wrong, _, _ in tallies), mismatches[:MISMATCHES_KEPT]
        self.bad_rounds = sum(bad_rounds for _, bad_rounds, _ in tallies)
