"""One cell of a sweep on one process: check the data and time the operation, in step with the
other processes.
"""

import time
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from busbw.core.ran import NcclKernel
from busbw.core.result import Cell, Mismatch
from busbw.core.sizes import short_size
from busbw.core.sweep import Sampling
from busbw.engines.base import CollectiveCall, Launch, Probe
from busbw.measure import adaptive_timing, timing, verification
from busbw.measure.batches import Batches
from busbw.measure.plan import Calls
from busbw.measure.progress import Progress
from busbw.stats.sampling import Decision, first_visit_samples

if TYPE_CHECKING:
    from busbw.measure.runner import Runner

MISMATCHES_KEPT = 8  # per cell; the count of wrong elements is always complete
MAX_POSITIONS = 4096  # buffer positions that a cell uses in turn; more would only cost memory
UNTIMED_OPERATIONS = 3  # operations before the first visit: the shortest tells how long one takes
# visits after which an operation is run untimed even if it seems long: they may have been disturbed
MAX_RETRIED_VISITS = 2
# a longer operation is not affected by the one before it: a GPU's caches are filled again in 20 us
LONG_S = 5e-3


class CellRun:
    """A cell of a runner's sweep while it is measured.

    Call `check` first. Then call `time_once`, or with precise timing `visit` while `more` is above
    0, and `finish`. These are collective. `cell` is what was measured.

    `operations` counts those of each rank, the untimed ones included. `check_s` and
    `visit_s` are the seconds of the check and of the last timing.
    `bad_rounds` counts the checks that found wrong data. `ran` is what NCCL ran, on process 0.
    """

    def __init__(self, runner: "Runner", calls: Calls, size: int, *, in_place: bool) -> None:
        self.runner, self.calls, self.size = runner, calls, size
        self.call = calls.at(size, in_place=in_place)
        self.label = f"{short_size(size)} {'in place' if in_place else 'out of place'}"
        self.operations, self.bad_rounds = 0, 0
        self.check_s = self.visit_s = self._operation_s = 0.0
        self._launch = runner.engine.bind(self.call)
        defined = not in_place or calls.collective.in_place_checked
        checked = runner.spec.check > 0 and defined and runner.engine.moves_data(self.call)
        self._tally = verification.Tally() if checked else None
        self._wrong: tuple[int, list[Mismatch]] | None = None
        self._visiting: adaptive_timing.CellVisits | None = None
        self._classic: Cell | None = None
        self.ran: NcclKernel | None = None

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
            progress = self.runner.begin("verify", self.label, self.size, 1)
            checked_s = self._check_rounds(self._tally, progress)
        self.check_s = time.perf_counter() - began
        sampling = self.runner.spec.sampling
        if sampling:
            checked_s = self.runner.largest(checked_s)
            shortest_s = min(self._untimed_s(checked_s) for _ in range(UNTIMED_OPERATIONS))
            self._operation_s = self.runner.largest(shortest_s)
            self._visiting = self._prepare_visits(sampling)

    def time_once(self) -> None:
        """Classic timing, and the check of what was timed."""
        began = time.perf_counter()
        targets = self._targets()
        probe = self._write_timed(targets)
        progress = self.runner.begin("timing", self.label, self.size, self.runner.awaited_together)
        launches = [self.runner.engine.bind(target) for target in targets]
        self._classic = self._time(launches, progress)
        if probe:
            self._check_timed(probe, targets)
        self.runner.world.barrier()
        self._share()
        self._record()
        self.visit_s = time.perf_counter() - began

    def visit(self) -> None:
        """One visit of precise timing; the first also checks the data and shares the counts."""
        began = time.perf_counter()
        runner, state = self.runner, self._visiting
        assert state is not None and runner.batches is not None and runner.spec.sampling is not None
        is_first = not state.visited
        targets = self._targets() if is_first else []
        probe = self._write_timed(targets) if is_first else None
        if probe:
            state.more = max(state.more, len(targets))
        progress = runner.begin("timing", self.label, self.size, runner.awaited_together)
        if not is_first and not self._is_undisturbed(state, runner.batches):
            untimed_s = runner.largest(self._once_untimed_s())
            state.estimate_s = min(state.estimate_s, untimed_s)
        runner.batches.progress = progress
        launched_before = runner.batches.launched
        adaptive_timing.visit(
            state,
            runner.batches,
            runner.world,
            runner.spec.sampling,
            runner.throttled,
            runner.group_id,
        )
        launches = runner.batches.launched - launched_before
        self.operations += launches * runner.spec.agg_iters
        if probe:
            self._check_timed(probe, targets)
        if is_first:
            self._share()
            self._record()
        self.visit_s = time.perf_counter() - began

    def stop(self) -> None:
        """Make no further visit: the time of the sweep is up."""
        if self._visiting and self._visiting.more:
            self._visiting.more = 0
            self._visiting.measured.decision = Decision(stopped="budget")

    def finish(self) -> None:
        """After the last visit: gather what only each process itself knows."""
        if self._visiting:
            adaptive_timing.finish(self._visiting, self.runner.world)

    def cell(self) -> Cell | None:
        """The cell, complete or so far, on process 0; not collective."""
        if self.runner.world.process != 0:
            return None
        cell = self._classic
        if self._visiting and self.runner.spec.sampling:
            spec = self.runner.spec
            cell = adaptive_timing.cell(
                self._visiting.measured,
                self.runner.spec.sampling,
                spec.agg_iters,
                self.calls.rates(self.call),
                synchronizes=spec.row.synchronizes,
                host_timed=not self.runner.engine.asynchronous,
                uneven=spec.row.uneven,
            )
        if cell is not None and self._wrong is not None:
            cell.wrong, cell.mismatches = self._wrong
        return cell

    def _check_rounds(self, tally: verification.Tally, progress: Progress) -> float:
        """Verify one operation per round; returns the seconds of the last operation."""
        took_s = [0.0]
        for number in range(self.runner.spec.check):
            probe = self._probe(number)
            wrong = verification.run_round(
                self.runner.engine, self.call, lambda: took_s.append(self._once_s()), probe
            )
            tally.add(self.runner.engine.ranks, wrong, probe)
            progress.done += 1
            if self.runner.spec.check > 1 and self.runner.largest(float(tally.bad_rounds)):
                break
        return took_s[-1]

    def _probe(self, number: int) -> Probe:
        # Sizes share a seed so that data can be reused; rounds differ so that data of an earlier
        # round cannot pass.
        return Probe(number + 1, self.call.dtype, self.call.op, self.runner.engine.size)

    def _untimed_s(self, known_s: float) -> float:
        """Run one untimed operation, so that no timed one directly follows a check or another size.

        Returns its seconds. `known_s` are those of an earlier one, the same on all processes. If
        they exceed LONG_S, nothing runs, and they are returned.
        """
        return known_s if known_s > LONG_S else self._once_untimed_s()

    def _is_undisturbed(self, state: adaptive_timing.CellVisits, batches: Batches) -> bool:
        """Whether a visit needs no untimed operation after those of other sizes: it is long, or its
        batch begins with some.

        Not for the first visits, whose estimate may be of disturbed samples.
        """
        return state.visited > MAX_RETRIED_VISITS and (
            state.estimate_s > LONG_S or batches.untimed(state.estimate_s) > 0
        )

    def _once_untimed_s(self) -> float:
        progress = self.runner.begin("timing", self.label, self.size, 1)
        took_s = self._once_s()
        progress.done += 1
        return took_s

    def _once_s(self) -> float:
        began = time.perf_counter()
        self._launch()
        self.runner.engine.synchronize(self.runner.spec.timeout)
        self.operations += 1
        return time.perf_counter() - began

    def _targets(self) -> list[CollectiveCall]:
        size_bytes = self.calls.moved_bytes(self.call)[0]
        positions = max(self.runner.max_bytes // size_bytes, 1) if size_bytes else 1
        operations = max(self.runner.iters * self.runner.spec.agg_iters, 1)
        return [
            self.calls.at(self.size, in_place=self.call.in_place, shift_bytes=size_bytes * number)
            for number in range(min(positions, operations, MAX_POSITIONS))
        ]

    def _prepare_visits(self, sampling: Sampling) -> adaptive_timing.CellVisits:
        runner = self.runner
        launches = [runner.engine.bind(target) for target in self._targets()]
        iterations = timing.iterations(
            runner.engine, runner.world, launches, runner.spec, runner.iters
        )
        if runner.spec.agg_iters > 1:
            # an aggregated launch (ncclGroup) may use other paths, whose setup must not wait in a
            # held queue
            iterations[0]()
            runner.engine.synchronize(runner.spec.timeout)
            self.operations += runner.spec.agg_iters
        assert runner.batches is not None
        measured = adaptive_timing.CellSamples(tick_s=runner.batches.tick_s)
        return adaptive_timing.CellVisits(
            cycle(iterations),
            first_visit_samples(sampling, runner.batches.each_s(self._operation_s)),
            self._operation_s,
            measured,
        )

    def _write_timed(self, targets: Sequence[CollectiveCall]) -> Probe | None:
        """Write data to check into what is timed next; None if it is not to be checked."""
        runner = self.runner
        reduces_in_place = self.call.in_place and self.calls.collective.reduces
        if not runner.spec.check_timed or runner.iters <= 0 or reduces_in_place or not self._tally:
            return None
        probe = self._probe(runner.spec.check)
        progress = runner.begin("verify", self.label, self.size, 1)
        for target in targets:
            verification.write(runner.engine, target, probe)
            progress.done += 1
        return probe

    def _check_timed(self, probe: Probe, targets: Sequence[CollectiveCall]) -> None:
        assert self._tally is not None
        progress = self.runner.begin("verify", self.label, self.size, 1)
        for target in targets:
            wrong = verification.check(self.runner.engine, target, probe)
            self._tally.add(self.runner.engine.ranks, wrong, probe)
            progress.done += 1

    def _time(self, launches: Sequence[Launch], progress: Progress) -> Cell:
        runner = self.runner
        times = timing.run(
            runner.engine, runner.world, launches, runner.spec, progress, runner.loop
        )
        time_s = timing.over_ranks(runner.world, times.time_s, runner.spec.average)
        cell = self.calls.rates(self.call).cell(max(time_s, adaptive_timing.SMALLEST_TIME_S))
        if runner.spec.report_cputime:
            cell.cpu_time_s = float(runner.world.bcast(times.cpu_time_s))
        by_process = runner.world.gather(times.samples_s) if times.samples_s else None
        if by_process is not None:
            cell.skipped = runner.spec.per_iter_skip
            cell.samples_s = [max(samples) for samples in zip(*by_process, strict=True)]
            cell.process_samples_s = by_process if len(by_process) > 1 else None
        return cell

    def _record(self) -> None:
        """Run one more operation, as those that were timed, of which NCCL says what it runs:
        nothing if it moves no data.
        """
        runner = self.runner
        if runner.recorder is None or not runner.recorder.running:
            return
        if not self.calls.moved_bytes(self.call)[0]:
            return
        launches = [self._launch] * runner.spec.agg_iters
        launch = runner.engine.grouped(launches) if len(launches) > 1 else self._launch
        progress = runner.begin("timing", self.label, self.size, len(launches))
        self.ran = runner.recorder.record(launch, runner.spec.timeout)
        progress.done += 1
        self.operations += len(launches)

    def _share(self) -> None:
        """Add the counts of all processes."""
        tally = self._tally
        if tally is None:
            return
        tallies = self.runner.world.gather(
            (tally.wrong, tally.bad_rounds, tally.mismatches[:MISMATCHES_KEPT])
        )
        if tallies is None:
            return
        mismatches: list[Mismatch] = []
        for _, _, of_process in tallies:
            mismatches += of_process
        self._wrong = sum(wrong for wrong, _, _ in tallies), mismatches[:MISMATCHES_KEPT]
        self.bad_rounds = sum(bad_rounds for _, bad_rounds, _ in tallies)
