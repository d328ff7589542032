"""The order of a sweep on an opened engine: for every series warm up, then for every size verify,
time and report, in step with the other processes.

With precise timing all sizes are visited again and again, so that no figure is that of one moment.
Rows are reported after their first visit, so that a run that ends early loses none, and again when
they are final, in the order of their sizes.
"""

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from busbw.core.result import PairLink, RankDevice, ResultRow
from busbw.core.sizes import short_size
from busbw.core.sweep import Series, SweepSpec, series, sizes, warmup_sizes
from busbw.core.telemetry import HostChange
from busbw.engines.base import Engine
from busbw.launch.control import Control
from busbw.measure import links
from busbw.measure.batches import MAX_HELD, MAX_LEAD_IN, Batches, HeldBatches, HostClockBatches
from busbw.measure.cell_run import CellRun
from busbw.measure.eta import RemainingTime
from busbw.measure.events import Emit, EnterPhase, Event, Note, RowDone, now
from busbw.measure.host_sampler import HostSampler, add_changes
from busbw.measure.plan import Calls, refuse_unsupported
from busbw.measure.progress import Progress
from busbw.stats.sampling import fewest_visits

if TYPE_CHECKING:
    from busbw.engines.program import Loop
    from busbw.measure.what_ran import KernelRecorder

WARM_UP_BYTES = 64 << 20  # larger sizes take the same path in a library
# A pass over the cells takes at least this long, so that what disturbs a visit is over at the next.
PASS_S = 10e-3
LONG_REST_S = 5.0  # that is worth a line
# Rows that are visited again are reported so often, in at most such a share of the time. What was
# measured since is lost if the run is interrupted.
INTERIM_S, INTERIM_SHARE = 2.0, 0.05
PRECISE_POSITIONS = 8  # positions in the buffers, with precise timing


@dataclass
class _OpenRow:
    """A row while it is measured.

    `number` counts the rows of this repeat; `changes` are what each host has seen in each visit.
    """

    number: int
    cells: tuple[CellRun, CellRun]
    changes: list[list[HostChange | None]] = field(default_factory=list)

    @property
    def more(self) -> bool:
        return any(cell.more for cell in self.cells)

    def machine(self) -> list[HostChange] | None:
        """What changed on each host in all visits; None if hosts were not sampled."""
        changes = []
        for by_visit in zip(*self.changes, strict=True):
            known = [change for change in by_visit if change]
            if known:
                changes.append(add_changes(known))
        return changes or None


@dataclass(kw_only=True)
class Runner:
    """Runs a sweep on an engine, and holds what its cells share."""

    engine: Engine
    world: Control  # connects all processes
    group: Control  # connects those of this communicator; the same as `world` without a split
    spec: SweepSpec
    max_bytes: int
    emit: Emit
    # called before each phase (warm-up, verify, timing) with its detail, `1 MiB in place`
    enter_phase: EnterPhase = lambda *_: None
    late_s: float = 0.0  # an injected delay of this process
    # reads the counters of its host
    host_sampler: HostSampler = field(default_factory=lambda: HostSampler(()))
    repeat: int = 0  # how often the communicators have been recreated so far
    loop: "Loop | None" = None  # enqueues operations in place of Python
    recorder: "KernelRecorder | None" = None  # asks NCCL what it runs

    def __post_init__(self) -> None:
        """Prepare what all cells share."""
        self.out_of_bounds = 0
        self._forecast = RemainingTime(())
        self._rows = 0
        self._next_report_s = 0.0  # when rows that are visited again are due
        self._repeats = self.spec.sampling.repeats if self.spec.sampling else 1
        self.batches: Batches | None = None  # of precise timing
        self.group_id = 0  # ranks of different groups do not wait for each other
        if self.spec.sampling:
            if self.engine.asynchronous:
                self.batches = HeldBatches(self.engine, self.spec, self.loop)
            else:
                self.batches = HostClockBatches(self.world, self.late_s)
            self.group_id = int(self.group.bcast(self.world.process))

    @property
    def iters(self) -> int:
        """Operations that are sure to be timed: data that is verified must come from them."""
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

    def sweep(self) -> None:
        """Run all cycles of all series.

        Emits only a note if the collective requires a power-of-two number of ranks and this job has
        a different number.
        """
        ranks = self.engine.size
        if self.spec.row.ranks_power_of_two and ranks & (ranks - 1):
            line = f"nRanks {ranks} is not a power of 2, skipping"
            # in nccl-tests every process prints it
            self._emit(Note("\n".join([line] * self.world.processes), answer=True))
            return
        all_series = list(series(self.spec, ranks))
        cycles = (self._repeats - self.repeat) * max(self.spec.run_cycles, 1)
        rows = list(sizes(self.spec, self.max_bytes)) * len(all_series) * cycles
        sampling = self.spec.sampling
        self._forecast = RemainingTime(rows, fewest_visits(sampling) if sampling else 1)
        limit_s = self.spec.soak_s or (sampling.sweep_s if sampling else 0.0)
        self._end_s = time.monotonic() + limit_s
        endless = self.spec.soak_s or not self.spec.run_cycles
        for _ in itertools.count() if endless else range(self.spec.run_cycles):
            for each_series in all_series:
                self._run_series(each_series)
                if self._soaked():
                    return

    def _soaked(self, *, by_time: bool = True) -> bool:
        """Whether a soak ends here: process 0 decides for all."""
        if not self.spec.soak_s:
            return False
        over = by_time and time.monotonic() >= self._end_s
        return bool(self.world.bcast(self.out_of_bounds > 0 or over))

    def _is_over(self) -> bool:
        """Whether the time of the sweep is up: process 0 decides for all."""
        sampling = self.spec.sampling
        if sampling is None or not sampling.sweep_s:
            return False
        return bool(self.world.bcast(time.monotonic() >= self._end_s))

    def _tell_rest(self, open_rows: Sequence[_OpenRow], *, is_first: bool) -> None:
        """After the first round, say how long the others take, if that is long."""
        left_s = self._left_s()
        if is_first and open_rows and left_s is not None and left_s >= LONG_REST_S:
            self._emit(Note(f"note: all sizes were measured once; about {left_s:.0f} s left"))

    def links(self, devices: Sequence[RankDevice]) -> list[PairLink]:
        """The links of all pairs of ranks, each measured while the others are idle.

        [] without precise timing, with several communicators, or with fewer than three ranks.
        """
        if self.batches is None or self.group.processes != self.world.processes:
            return []
        return links.measure(
            self.engine,
            self.world,
            self.batches,
            devices,
            self.max_bytes,
            self.enter_phase,
            self.spec.timeout,
        )

    def _run_series(self, series: Series) -> None:
        calls = Calls(self.spec, series, self.engine.size)
        # GPUs may differ between hosts: all ranks skip what one of them does not support.
        reasons = self.world.allgather(
            self.engine.unsupported(calls.collective, calls.dtype, calls.reduction)
        )
        reason = next(filter(None, reasons), None)
        if reason:
            if "all" not in (self.spec.datatype.lower(), self.spec.op.lower()):
                refuse_unsupported(reason, calls)
            skipped = f"skipped {calls.dtype.name} {series.op}".rstrip()
            self._emit(Note(f"{skipped}: {reason}"))
            return
        self._warm_up(calls)
        self.host_sampler.begin()
        if self.spec.sampling is None:
            for size in sizes(self.spec, self.max_bytes):
                self._measure_at_once(calls, size)
                if self._soaked():
                    return
            return
        self._measure_in_visits(
            [self._new_row(calls, size) for size in sizes(self.spec, self.max_bytes)]
        )

    def _new_row(self, calls: Calls, size: int) -> _OpenRow:
        out_of_place = CellRun(self, calls, size, in_place=False)
        in_place = CellRun(self, calls, size, in_place=True)
        row = _OpenRow(self._rows, (out_of_place, in_place))
        self._rows += 1
        return row

    def _measure_at_once(self, calls: Calls, size: int) -> None:
        row = self._new_row(calls, size)
        for cell in row.cells:
            cell.check()
            cell.time_once()
            self._learn(row, cell)
        self.out_of_bounds += sum(cell.bad_rounds for cell in row.cells)
        self._report(row)

    def _measure_in_visits(self, rows: Sequence[_OpenRow]) -> None:
        """Visit all rows, in another order each time, until each has been visited often enough.

        Collective.
        """
        waiting, order = list(rows), list(rows)
        rng = random.Random(self.repeat)  # the same on all ranks
        if self._repeats > 1:
            rng.shuffle(order)
        is_first = True
        while order:
            began = time.monotonic()
            for row in order:
                self._visit(row, is_first=is_first)
                if is_first and self._soaked(by_time=False):
                    waiting = [row for row in waiting if row.changes]
                    for row in waiting:
                        self._report(row)
                    return
            if self._is_over():
                for cell in (cell for row in rows for cell in row.cells):
                    cell.stop()
            while waiting and not waiting[0].more:
                self._report(waiting.pop(0))
            self._report_so_far(() if is_first else waiting)
            order = [row for row in rows if row.more]
            self._tell_rest(order, is_first=is_first)
            is_first = False
            rng.shuffle(order)
            if order:
                self._pause(began)

    def _report_so_far(self, waiting: Sequence[_OpenRow]) -> None:
        """Report rows that are visited again, if that is due."""
        began = time.monotonic()
        if waiting and began < self._next_report_s:
            return
        for row in waiting:
            self._report(row, final=False)
        ended = time.monotonic()
        self._next_report_s = ended + max(INTERIM_S, (ended - began) / INTERIM_SHARE)

    def _visit(self, row: _OpenRow, *, is_first: bool) -> None:
        for cell in row.cells:
            if is_first:
                cell.check()
            if is_first or cell.more:
                cell.visit()
                self._learn(row, cell)
        row.changes.append(self.world.gather(self.host_sampler.row()) or [])
        if is_first:
            self.out_of_bounds += sum(cell.bad_rounds for cell in row.cells)
            self._report(row, final=False)

    def _warm_up(self, calls: Calls) -> None:
        if not self.spec.warmup_iters:
            return
        # With precise timing every size has an untimed operation, and large sizes need no other
        # warm-up.
        largest = self.max_bytes
        if self.spec.sampling:
            largest = min(largest, max(self.spec.min_bytes, WARM_UP_BYTES))
        for size in warmup_sizes(self.spec, largest):
            progress = self.begin("warm-up", short_size(size), size, self.spec.warmup_iters)
            launch = self.engine.bind(calls.at(size, in_place=False))
            for _ in range(self.spec.warmup_iters):
                launch()
                if not self.engine.asynchronous:
                    progress.done += 1
            self.engine.synchronize(self.spec.timeout)
            if self.engine.asynchronous:
                progress.done += 1

    def begin(self, phase: str, detail: str, size: int, operations: int) -> Progress:
        """Report the phase that begins.

        The `operations` of a device queue are awaited together, others one by one.
        """
        awaited_together = max(operations, 1) if self.engine.asynchronous else 1
        progress = Progress(size, awaited_together, self._left_s())
        self.enter_phase(phase, detail, progress)
        return progress

    def _left_s(self) -> float | None:
        """Seconds until the sweep ends, as far as they can be told."""
        if self.spec.soak_s:
            return self._end_s - time.monotonic()
        left_s = self._forecast.left_s() if self.spec.run_cycles else None
        sampling = self.spec.sampling
        if left_s is not None and sampling and sampling.sweep_s:
            return max(min(left_s, self._end_s - time.monotonic()), 0.0)
        return left_s

    def _learn(self, row: _OpenRow, cell: CellRun) -> None:
        key = row.number, cell.call.in_place
        self._forecast.learn(key, cell.size, cell.check_s, cell.visit_s, last=not cell.more)

    def _pause(self, began: float) -> None:
        """Lengthen a short pass; simulated operations are not disturbed."""
        if self.engine.name != "sim":
            time.sleep(max(began + PASS_S - time.monotonic(), 0.0))

    def _report(self, row: _OpenRow, *, final: bool = True) -> None:
        """Emit the row as it is; collective if it is `final`."""
        if final:
            for cell in row.cells:
                cell.finish()
        out_of_place, in_place = (cell.cell() for cell in row.cells)
        if out_of_place is None or in_place is None:
            return  # not process 0
        calls, call = row.cells[0].calls, row.cells[0].call
        size_bytes, count, _ = calls.moved_bytes(call)
        iters = self.spec.iters
        if self.spec.sampling:
            iters = len(out_of_place.samples_s or ())
        reported = ResultRow(
            size_bytes,
            count,
            calls.series.dtype,
            calls.series.op,
            calls.series.root,
            out_of_place,
            in_place,
            iters,
            now() if self.spec.report_timestamps else "",
            repeat=self.repeat,
        )
        reported.ran, in_place_ran = (cell.ran for cell in row.cells)
        reported.ran_in_place = in_place_ran if in_place_ran != reported.ran else None
        reported.machine = row.machine()
        reported.operations = sum(cell.operations for cell in row.cells) if reported.machine else 0
        self._emit(RowDone(reported, self.out_of_bounds, row.number, final=final))

    def _emit(self, event: Event) -> None:
        if self.world.process == 0:
            self.emit(event)
