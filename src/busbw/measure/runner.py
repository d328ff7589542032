"""One process's part of a sweep: for every series warm up, then for every size verify, time and report, in step with the others."""

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from busbw.core.probe import Probe
from busbw.core.result import Cell, Device, Link, Row
from busbw.core.sizes import short_size
from busbw.core.sweep import Sampling, Series, SweepSpec, series, sizes, warmup_sizes
from busbw.engines.base import Call, Engine, Launch
from busbw.launch.control import Control
from busbw.measure import links, precise, timing, verification
from busbw.measure.batches import MAX_HELD, MAX_LEAD_IN, Batches, HeldBatches, HostClockBatches
from busbw.measure.events import Emit, EnterPhase, Event, Note, RowDone, now
from busbw.measure.forecast import Forecast
from busbw.measure.host_sampler import HostSampler
from busbw.measure.plan import Calls, Rates, refuse_unsupported
from busbw.measure.progress import Progress
from busbw.stats.sampling import THROTTLED_TAKES, first

MISMATCHES_KEPT = 8  # per cell; the count of wrong elements is always complete
MAX_POSITIONS = 4096  # buffer positions that a cell uses in turn; more would only cost memory
LONG_S = 20e-3  # a longer operation is not affected by the one before it
WARM_UP_BYTES = 64 << 20  # larger sizes take the same path in a library


@dataclass
class Runner:
    """Runs a sweep on an engine.

    `world` connects all processes; `group` only those of this communicator. Without a split they are the same. `enter_phase` is called
    before each phase (warm-up, verify, timing) with its detail (`1 MiB in place`); `late_s` is an injected delay of this process;
    `host_sampler` reads the counters of its host; `repeat` is the number of times the communicators have been recreated so far.
    """

    engine: Engine
    _: KW_ONLY
    world: Control
    group: Control
    spec: SweepSpec
    max_bytes: int
    emit: Emit
    enter_phase: EnterPhase = lambda *_: None
    late_s: float = 0.0
    host_sampler: HostSampler = field(default_factory=lambda: HostSampler(()))
    repeat: int = 0
    out_of_bounds: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Prepare the batches of precise timing."""
        spec = self.spec
        self._forecast = Forecast((), None, 0)
        self._operations = 0  # of the row
        self._iters = min(first(spec.sampling), MAX_HELD) if spec.sampling else spec.iters
        most = MAX_HELD + MAX_LEAD_IN if spec.sampling else spec.iters * max(spec.cudagraph, 1)
        self._awaited_together = most * spec.agg_iters  # operations of a device queue
        self._batches: Batches
        if spec.sampling:
            self._batches = HeldBatches(self.engine, spec) if self.engine.asynchronous else HostClockBatches(self.world, self.late_s)
            self._group_id = int(self.group.bcast(self.world.process))  # ranks of different groups do not wait for each other

    def sweep(self) -> None:
        """Run all cycles of all series.

        Emits only a note if the collective requires a power-of-two number of ranks and this job has a different number.
        """
        ranks = self.engine.size
        if self.spec.row.ranks_power_of_two and ranks & (ranks - 1):
            line = f"nRanks {ranks} is not a power of 2, skipping"
            self._emit(Note("\n".join([line] * self.world.processes), answer=True))  # in nccl-tests every process prints it
            return
        sampling, every_series = self.spec.sampling, list(series(self.spec, ranks))
        passes = (sampling.repeats - self.repeat if sampling else 1) * max(self.spec.run_cycles, 1)
        rows = list(sizes(self.spec, self.max_bytes)) * len(every_series) * passes
        self._forecast = Forecast(rows, sampling, first(sampling) if sampling else self.spec.iters)
        self._end_s = time.monotonic() + self.spec.soak_s
        endless = self.spec.soak_s or not self.spec.run_cycles
        for _ in itertools.count() if endless else range(self.spec.run_cycles):
            for one in every_series:
                self._series(one)
                if self._soaked():
                    return

    def _soaked(self) -> bool:
        """Whether a soak ends here: process 0 decides for all."""
        if not self.spec.soak_s:
            return False
        return bool(self.world.bcast(self.out_of_bounds > 0 or time.monotonic() >= self._end_s))

    def links(self, devices: Sequence[Device]) -> list[Link]:
        """The exchanges of each pair of ranks alone, with precise timing and one communicator of three or more ranks; otherwise []."""
        if not self.spec.sampling or self.group.processes != self.world.processes:
            return []
        return links.measure(self.engine, self.world, self._batches, devices, self.max_bytes, self.enter_phase, self.spec.timeout)

    def _series(self, one: Series) -> None:
        calls = Calls(self.spec, one, self.engine.size)
        # GPUs may differ between hosts: all ranks skip what one of them does not support.
        reasons = self.world.allgather(self.engine.unsupported(calls.collective, calls.dtype, calls.reduction))
        reason = next(filter(None, reasons), None)
        if reason:
            if "all" not in (self.spec.datatype.lower(), self.spec.op.lower()):
                refuse_unsupported(reason, calls)
            self._emit(Note(f"skipped {calls.dtype.name} {one.op}".rstrip() + f": {reason}"))
            return
        self._warm_up(calls)
        self.host_sampler.begin()
        order = list(sizes(self.spec, self.max_bytes))
        if self.spec.sampling and self.spec.sampling.repeats > 1:
            random.Random(self.repeat).shuffle(order)  # the same on all ranks
        for size in order:
            self._row(calls, size)
            if self._soaked():
                return

    def _warm_up(self, calls: Calls) -> None:
        if not self.spec.warmup_iters:
            return
        # With precise timing every size has an untimed operation, and large sizes need no other warm-up.
        most = min(self.max_bytes, max(self.spec.min_bytes, WARM_UP_BYTES)) if self.spec.sampling else self.max_bytes
        for size in warmup_sizes(self.spec, most):
            progress = self._begin("warm-up", short_size(size), size, self.spec.warmup_iters)
            launch = self.engine.bind(calls.at(size, in_place=False))
            for _ in range(self.spec.warmup_iters):
                launch()
                progress.done += not self.engine.asynchronous
            self.engine.synchronize(self.spec.timeout)
            progress.done += self.engine.asynchronous

    def _begin(self, phase: str, detail: str, size: int, operations: int) -> Progress:
        """Report the phase that begins. The `operations` of a device queue are awaited together, others one by one."""
        progress = Progress(size, max(operations, 1) if self.engine.asynchronous else 1, self._forecast.left_s())
        self.enter_phase(phase, detail, progress)
        return progress

    def _row(self, calls: Calls, size: int) -> None:
        self._operations = 0
        out_of_place, in_place = (self._cell(calls, size, in_place=placed) for placed in (False, True))
        machine = self.world.gather(self.host_sampler.row()) if self.spec.sampling else None
        if out_of_place is None or in_place is None:
            return  # not process 0
        call = calls.at(size, in_place=False)
        size_bytes, count, _ = calls.moved_bytes(call)
        stamp = now() if self.spec.report_timestamps else ""
        one, iters = calls.series, len(out_of_place.samples_s or ()) if self.spec.sampling else self.spec.iters
        row = Row(size_bytes, count, one.dtype, one.op, one.root, out_of_place, in_place, iters, stamp, repeat=self.repeat)
        row.machine = [change for change in machine or [] if change] or None
        row.operations = self._operations if row.machine else 0
        self._emit(RowDone(row, self.out_of_bounds))

    def _cell(self, calls: Calls, size: int, *, in_place: bool) -> Cell | None:
        call = calls.at(size, in_place=in_place)
        launch = self.engine.bind(call)
        checked = self.spec.check > 0 and (not in_place or calls.collective.in_place_checked)
        tally = verification.Tally()
        where = f"{short_size(size)} {'in place' if in_place else 'out of place'}"
        checked_s, begun = 0.0, time.perf_counter()
        if checked:
            checked_s = self._check_rounds(call, launch, tally, self._begin("verify", where, size, 1))
        verified = time.perf_counter()
        estimate_s = self._untimed_s(launch, checked_s, self._begin("timing", where, size, 1)) if self.spec.sampling else 0.0
        cell = self._timed(calls, call, size, where, tally if checked else None, estimate_s)
        timing_s = time.perf_counter() - verified
        self._forecast.learn(size, verified - begun, timing_s, estimate_s or timing_s / max(self.spec.iters, 1))
        if checked:
            self._share(tally, cell)
        return cell

    def _untimed_s(self, launch: Launch, checked_s: float, progress: Progress) -> float:
        """Run one untimed operation, so that no timed one directly follows a check, and return its duration in seconds.

        Skipped if the checked operation took longer than LONG_S: its duration `checked_s` is returned instead.
        """
        checked_s = self.world.reduce_all([checked_s], "max")[0]  # the same on all ranks
        if checked_s > LONG_S:
            return checked_s
        took_s = self._once_s(launch)
        progress.done += 1
        return took_s

    def _once_s(self, launch: Launch) -> float:
        begun = time.perf_counter()
        launch()
        self.engine.synchronize(self.spec.timeout)
        self._operations += 1
        return time.perf_counter() - begun

    def _check_rounds(self, call: Call, launch: Launch, tally: verification.Tally, progress: Progress) -> float:
        """Verify one operation per round until a rank finds wrong data; returns the seconds of the last operation."""
        took_s = [0.0]
        for round_number in range(self.spec.check):
            probe = self._probe(call, round_number)
            wrong = verification.run_round(self.engine, call, lambda: took_s.append(self._once_s(launch)), probe)
            tally.add(self.engine.ranks, wrong, probe)
            progress.done += 1
            if self.spec.check > 1 and self.world.reduce_all([float(tally.bad_rounds)], "max")[0]:
                break
        return took_s[-1]

    def _probe(self, call: Call, round_number: int) -> Probe:
        # Sizes share a seed so that data can be reused; rounds differ so that data of an earlier round cannot pass.
        return Probe(round_number + 1, call.dtype, call.op, self.engine.size)

    def _timed(self, calls: Calls, call: Call, size: int, where: str, tally: verification.Tally | None, estimate_s: float) -> Cell | None:
        size_bytes, rates = calls.moved_bytes(call)[0], calls.rates(call)
        positions = max(self.max_bytes // size_bytes, 1) if size_bytes else 1
        iters = self._iters  # guaranteed to run: data verified afterwards must come from them
        shifts = [size_bytes * i for i in range(min(positions, max(iters * self.spec.agg_iters, 1), MAX_POSITIONS))]
        targets = [calls.at(size, in_place=call.in_place, shift_bytes=shift) for shift in shifts]
        verify = self.spec.check_timed and iters > 0 and not (call.in_place and call.collective.reduces)
        if verify and tally:
            probe, progress = self._probe(call, self.spec.check), self._begin("verify", where, size, 1)
            for target in targets:
                verification.write(self.engine, target, probe)
                progress.done += 1
        progress = self._begin("timing", where, size, self._awaited_together)
        launches = [self.engine.bind(target) for target in targets]
        sampling = self.spec.sampling
        if sampling:
            cell = self._precise(launches, sampling, estimate_s, progress, rates, len(targets) if verify and tally else 1)
        else:
            cell = self._classic(launches, progress, rates)
        if verify and tally:
            progress = self._begin("verify", where, size, 1)
            for target in targets:
                tally.add(self.engine.ranks, verification.check(self.engine, target, probe), probe)
                progress.done += 1
        self.world.barrier()
        return cell

    def _precise(
        self, launches: Sequence[Launch], sampling: Sampling, estimate_s: float, progress: Progress, rates: Rates, min_samples: int
    ) -> Cell | None:
        """The cell, on process 0 only. Samples during which heat or a power limit slowed a GPU are repeated once or twice."""
        iterations = timing.iterations(self.engine, self.world, launches, self.spec, self._iters)
        if self.spec.agg_iters > 1:
            iterations[0]()  # an aggregated launch (ncclGroup) may use other paths, whose setup must not wait in a held queue
            self.engine.synchronize(self.spec.timeout)
            self._operations += self.spec.agg_iters
        estimate_s = self.world.reduce_all([estimate_s], "max")[0]  # the same on all ranks
        self._batches.progress, launched = progress, self._batches.launched
        for _ in range(THROTTLED_TAKES):
            self.host_sampler.throttled_since_last()  # what came before does not count
            seen = precise.run(
                self._batches, self.world, iterations, sampling, estimate_s, group_id=self._group_id, min_samples=min_samples
            )
            throttled = self.world.reduce_all([float(self.host_sampler.throttled_since_last())], "max")[0] > 0
            if not throttled:
                break
        self._operations += (self._batches.launched - launched) * self.spec.agg_iters
        if seen is None:
            return None
        cell = precise.cell(
            seen, sampling, self.spec.agg_iters, rates, synchronizes=self.spec.row.synchronizes,
            host_timed=not self.engine.asynchronous, uneven=self.spec.row.uneven,
        )  # fmt: skip
        if throttled:
            cell.stopped = "unstable"
        return cell

    def _classic(self, launches: Sequence[Launch], progress: Progress, rates: Rates) -> Cell:
        seen = timing.run(self.engine, self.world, launches, self.spec, progress)
        cell = rates.cell(max(timing.over_ranks(self.world, seen.time_s, self.spec.average), precise.SMALLEST_TIME_S))
        if self.spec.report_cputime:
            cell.cpu_time_s = float(self.world.bcast(seen.cpu_time_s))
        if seen.samples_s:
            every = self.world.gather(seen.samples_s)
            if every is not None:
                cell.skipped = self.spec.per_iter_skip
                cell.samples_s = [max(values) for values in zip(*every, strict=True)]
                cell.process_samples_s = every if len(every) > 1 else None
        return cell

    def _share(self, tally: verification.Tally, cell: Cell | None) -> None:
        """Add the counts of all processes to the cell."""
        every = self.world.gather((tally.wrong, tally.bad_rounds, tally.mismatches[:MISMATCHES_KEPT]))
        if every is None or cell is None:
            return
        cell.wrong = sum(wrong for wrong, _, _ in every)
        self.out_of_bounds += sum(rounds for _, rounds, _ in every)
        cell.mismatches = [mismatch for _, _, mismatches in every for mismatch in mismatches][:MISMATCHES_KEPT]

    def _emit(self, event: Event) -> None:
        if self.world.process == 0:
            self.emit(event)
