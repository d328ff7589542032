"""Timing several operations in visits, in one process."""

import time
from typing import Any

from busbw.core.sweep import Sampling
from busbw.engines.base import Engine
from busbw.launch.control import SoloControl
from busbw.measure.batches import BatchTimes, HostClockBatches
from busbw.measure.host_sampler import HostSampler
from busbw.moe.visits import TimedLaunch, Visitor

LATE_S = 1000.0


class NoEngine(Engine):
    """Its operations are complete when they return."""

    asynchronous = False


class LateBatches(HostClockBatches):
    """A rank that starts much later than the others."""

    def take(self, launches: Any, estimate_s: float) -> BatchTimes:
        taken = super().take(launches, estimate_s)
        return BatchTimes(taken.durations_s, [[LATE_S for _ in late] for late in taken.late_s])


def visitor(sampling: Sampling, phases: list[str]) -> Visitor:
    control = SoloControl()
    return Visitor(
        NoEngine(),
        control,
        LateBatches(control),
        sampling,
        HostSampler(()),
        lambda phase, detail, _=None: phases.append(detail),
    )


def sleeping(label: str, seconds: float, *, local: bool) -> TimedLaunch:
    return TimedLaunch(label, 100, lambda: time.sleep(seconds), local)


def test_local_work_does_not_count_a_late_start() -> None:
    waiting, local = sleeping("a", 1e-3, local=False), sleeping("b", 1e-3, local=True)
    phases: list[str] = []
    timer = visitor(Sampling(precision=0.5, max_time_s=0.02), phases)
    reports: list[list[int]] = []

    def report() -> None:
        reports.append([timer.cell(one).n for one in (waiting, local)])

    timer.time([waiting, local], report)
    assert timer.cell(waiting).time_s >= LATE_S
    assert 1e-3 <= timer.cell(local).time_s < LATE_S
    assert timer.cell(local).n >= 8
    assert {"a", "b"} == set(phases)
    assert len(reports) >= 2
    assert all(min(counts) >= 1 for counts in reports)
    assert reports[-1] == [timer.cell(waiting).n, timer.cell(local).n]


def test_no_visit_follows_when_the_time_is_up() -> None:
    operation = sleeping("a", 1e-4, local=True)
    timer = visitor(Sampling(precision=1e-6, max_time_s=60.0, sweep_s=1e-9), [])
    timer.time([operation], lambda: None)
    cell = timer.cell(operation)
    assert cell.stopped == "budget"
    assert len(cell.visits) == 1
