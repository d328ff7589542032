"""Precise timing of several operations: all are visited again and again, in another order each
time, so that no figure is that of one moment.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

from busbw.core.result import Cell
from busbw.core.sweep import Sampling
from busbw.engines.base import Engine, Launch
from busbw.launch.control import Control
from busbw.measure import adaptive_timing
from busbw.measure.batches import MAX_HELD, MAX_LEAD_IN, Batches
from busbw.measure.events import EnterPhase
from busbw.measure.host_sampler import HostSampler
from busbw.measure.plan import BandwidthFactors
from busbw.measure.progress import Progress
from busbw.stats.sampling import Decision, first_visit_samples

INTERIM_S = 2.0  # between reports: what was measured since is lost if the run is interrupted
UNTIMED_OPERATIONS = 3  # before the first visit: the shortest tells how long one takes


@dataclass(slots=True)
class TimedLaunch:
    """An operation to time.

    `label` and `size_bytes` are for messages and limits. The time of a `local` one is the longest
    over the ranks; that of others reaches from the first rank's start to the last rank's end.
    """

    label: str
    size_bytes: int
    launch: Launch
    local: bool
    visits: adaptive_timing.CellVisits | None = None

    @property
    def more(self) -> bool:
        """Whether another visit follows."""
        return self.visits is not None and self.visits.more > 0


@dataclass(slots=True)
class Visitor:
    """Times operations on an opened engine, in step with all processes."""

    engine: Engine
    control: Control
    batches: Batches
    sampling: Sampling
    host_sampler: HostSampler
    enter_phase: EnterPhase

    def time(self, operations: Sequence[TimedLaunch], report: Callable[[], None]) -> None:
        """Visit all until each is known as precisely as wanted, or the time is up. Collective.

        Process 0 calls `report` after the first pass, now and then, and at the end.
        """
        began_s = time.monotonic()
        end_s = began_s + self.sampling.sweep_s if self.sampling.sweep_s else math.inf
        report_s = 0.0
        for operation in operations:
            self._prepare(operation)
        self.host_sampler.begin()
        order, rng = list(operations), random.Random(1)  # the same on all ranks
        while order:
            for operation in order:
                self._visit(operation)
            if self.control.bcast(time.monotonic() >= end_s):
                stop(order)
            order = [operation for operation in order if operation.more]
            if order and time.monotonic() >= report_s and self.control.process == 0:
                report()
                report_s = time.monotonic() + INTERIM_S
            rng.shuffle(order)
        for operation in operations:
            assert operation.visits is not None
            adaptive_timing.finish(operation.visits, self.control)
        if self.control.process == 0:
            report()

    def cell(self, operation: TimedLaunch) -> Cell:
        """What was measured; only on process 0."""
        assert operation.visits is not None
        rates = BandwidthFactors(operation.size_bytes, 1.0)
        return adaptive_timing.cell(
            operation.visits.measured, self.sampling, 1, rates, synchronizes=False
        )

    def throttled(self) -> bool:
        """Whether heat or a power limit slowed a GPU of any host since this was last asked."""
        here = float(self.host_sampler.throttled_since_last())
        return self.control.reduce_all([here], "max")[0] > 0

    def _prepare(self, operation: TimedLaunch) -> None:
        progress = self._begin(operation, 1)
        took_s = []
        for _ in range(UNTIMED_OPERATIONS):
            self.control.barrier()
            began = time.perf_counter()
            operation.launch()
            self.engine.synchronize(0)
            took_s.append(time.perf_counter() - began)
            progress.done += 1
        each_s = self.control.reduce_all([min(took_s)], "max")[0]
        operation.visits = adaptive_timing.CellVisits(
            repeat(operation.launch),
            first_visit_samples(self.sampling, self.batches.each_s(each_s)),
            each_s,
            adaptive_timing.CellSamples(tick_s=self.batches.tick_s),
        )

    def _visit(self, operation: TimedLaunch) -> None:
        assert operation.visits is not None
        awaited = MAX_HELD + MAX_LEAD_IN if self.engine.asynchronous else 1
        self.batches.progress = self._begin(operation, awaited)
        adaptive_timing.visit(
            operation.visits,
            self.batches,
            self.control,
            self.sampling,
            self.throttled,
            group_id=0,
            local=operation.local,
        )

    def _begin(self, operation: TimedLaunch, awaited: int) -> Progress:
        progress = Progress(operation.size_bytes, awaited)
        self.enter_phase("timing", operation.label, progress)
        return progress


def stop(operations: Sequence[TimedLaunch]) -> None:
    """Make no further visit: the time is up."""
    for operation in operations:
        if operation.visits is not None and operation.visits.more:
            operation.visits.more = 0
            operation.visits.measured.decision = Decision(stopped="budget")
