"""Timed batches and their evaluation, on the simulated queue and in one real process with its
clock.
"""

import time
from collections.abc import Callable
from itertools import cycle

import pytest

from busbw.core.errors import NoMeasurement
from busbw.core.result import Cell
from busbw.core.sweep import Sampling, Series, SweepSpec
from busbw.engines.base import Launch
from busbw.engines.sim import SimEngine
from busbw.launch.control import Control, SoloControl
from busbw.measure import adaptive_timing
from busbw.measure.batches import (
    MAX_HELD,
    TRAILING_OPERATIONS,
    Clocks,
    HeldBatches,
    HostClockBatches,
    identity,
)
from busbw.measure.plan import BandwidthFactors, Calls
from busbw.stats.sampling import SAMPLES_PER_VISIT, first_visit_samples, reported_interval

SPEC = SweepSpec(collective="all_reduce", sampling=Sampling(max_time_s=60))


def engine(ranks: int = 4, **parameters: float) -> SimEngine:
    simulation = SimEngine(ranks, {"noise": 0.0, **parameters})
    simulation.allocate(1 << 16, 1 << 16)
    return simulation


def launch(simulation: SimEngine) -> Launch:
    return simulation.bind(
        Calls(SPEC, Series("float", "sum", -1), simulation.size).at(1024, in_place=False)
    )


def visited(
    simulation: SimEngine,
    sampling: Sampling,
    control: Control | None = None,
    *,
    run: Launch | None = None,
    throttled: Callable[[], bool] = lambda: False,
) -> adaptive_timing.CellSamples:
    """The measurements of all visits of a cell in order."""
    control, batches = control or SoloControl(), HeldBatches(simulation, SPEC)
    state = adaptive_timing.CellVisits(
        cycle([run or launch(simulation)]),
        first_visit_samples(sampling, 1e-5),
        1e-5,
        adaptive_timing.CellSamples(tick_s=batches.tick_s),
    )
    while state.more:
        adaptive_timing.visit(state, batches, control, sampling, throttled, group_id=0)
    samples = adaptive_timing.finish(state, control)
    assert samples is not None
    return samples


def sampled(simulation: SimEngine, sampling: Sampling) -> Cell:
    return adaptive_timing.cell(
        visited(simulation, sampling), sampling, 1, BandwidthFactors(1e6, 1.0)
    )


class Log(SimEngine):
    """Logs every launch, fence and mark."""

    log: list[str]

    def fence(self) -> Launch:
        return lambda: self.log.append("fence")

    def mark(self, index: int) -> None:
        self.log.append("mark")
        super().mark(index)

    def bind(self, call: object) -> Launch:
        run = super().bind(call)  # type: ignore[arg-type]

        def noted() -> None:
            self.log.append("launch")
            run()

        return noted


def test_marks_enclose_each_operation_after_its_fence() -> None:
    log = Log(2, {})
    log.log = []
    log.allocate(1 << 16, 1 << 16)
    HeldBatches(log, SPEC).take([launch(log)] * 40, 1e-3)
    text = " ".join(log.log)
    assert text.count("mark launch mark") == 40, "only the operation is between the marks"
    assert text.replace("mark launch mark", "").count("launch") == 0, (
        "an operation of 1 ms needs no padding"
    )
    assert text.count("fence mark launch") >= 40 and 40 <= log.log.count("fence") <= 80


def test_held_batches_pad_short_operations_on_both_sides() -> None:
    log = Log(2, {})
    log.log = []
    log.allocate(1 << 16, 1 << 16)
    HeldBatches(log, SPEC).take([launch(log)] * (MAX_HELD + 1), 1e-4)
    assert log.log.count("launch") == MAX_HELD + 1 + 2 * 3, (
        "300 us of lead-in in each of two batches"
    )
    assert log.log[-TRAILING_OPERATIONS:] == ["fence"] * TRAILING_OPERATIONS


def test_all_ranks_enqueue_the_same_number_of_fences() -> None:
    logs = []
    for _ in range(2):
        log = Log(2, {})
        log.log = []
        log.allocate(1 << 16, 1 << 16)
        HeldBatches(log, SPEC).take([launch(log)] * 100, 1e-5)
        logs.append(log.log)
    assert logs[0] == logs[1], "an extra fence on one rank would hang the job"


def test_an_engine_without_noise_needs_the_fewest_samples() -> None:
    cell = sampled(engine(noise=0.001, alpha_us=20.0), Sampling(max_time_s=60))
    assert (cell.visits, cell.stopped, cell.dropped) == ([SAMPLES_PER_VISIT] * 8, "ok", 0)
    assert cell.low_s is not None
    assert cell.high_s is not None
    assert cell.low_s <= cell.time_s <= cell.high_s
    assert cell.time_s == pytest.approx(20e-6, rel=0.01)
    assert cell.op_s == pytest.approx(cell.time_s)


def test_lateness_is_separate_from_operation_time() -> None:
    cell = sampled(engine(alpha_us=20.0, late_rank=2, late_us=100.0), Sampling(max_time_s=60))
    assert cell.time_s == pytest.approx(120e-6, rel=0.01), "from the first rank's start"
    assert cell.op_s == pytest.approx(20e-6, rel=0.05), "as the last rank measured it"
    assert cell.late_s == [pytest.approx(0.0, abs=1e-9)] * 2 + [pytest.approx(100e-6, rel=1e-3)] + [
        pytest.approx(0.0, abs=1e-9)
    ]


def test_a_group_of_operations_counts_as_that_many() -> None:
    simulation = engine(alpha_us=20.0)
    samples = visited(
        simulation, Sampling(max_time_s=60), run=simulation.grouped([launch(simulation)] * 5)
    )
    assert adaptive_timing.cell(
        samples, Sampling(max_time_s=60), 5, BandwidthFactors(1e6, 1.0)
    ).time_s == pytest.approx(20e-6, rel=0.01)


def test_a_fixed_sample_count_is_kept() -> None:
    cell = sampled(engine(noise=0.3), Sampling(fixed=17))
    assert (sum(cell.visits), len(cell.visits), cell.stopped) == (17, 8, "fixed")
    short_cell = sampled(engine(noise=0.3), Sampling(fixed=3))
    assert (short_cell.low_s, short_cell.high_s, len(short_cell.samples_s or [])) == (None, None, 3)


def test_the_tail_has_a_confidence_interval() -> None:
    cell = sampled(engine(noise=0.01, outlier=0.03), Sampling(tail=True, confidence=0.95))
    assert cell.p99_s is not None
    assert len(cell.samples_s or []) >= 299
    assert cell.p99_s > 5 * cell.time_s, "three in a hundred take ten times as long"


def timed(wait_s: float) -> Callable[[], None]:
    def run() -> None:
        end = time.perf_counter() + wait_s
        while time.perf_counter() < end:
            pass

    return run


class Ticking(SimEngine):
    """Its clock counts in 32 ns, and empty durations differ by some ticks."""

    def elapsed_s(self, first: int, last: int) -> list[float]:
        return [32e-9 * (40 + first % 7) for _ in self.ranks]


def test_the_clock_tick_is_found_and_widens_the_interval() -> None:
    ticking = Ticking(2, {})
    ticking.allocate(1 << 20, 1 << 20)
    samples = visited(ticking, Sampling(fixed=20))
    assert samples.tick_s == pytest.approx(32e-9)
    cell = adaptive_timing.cell(samples, Sampling(max_time_s=60), 1, BandwidthFactors(1e6, 1.0))
    plain = reported_interval(samples.by_visit(), Sampling(max_time_s=60).confidence)
    assert plain is not None
    assert cell.low_s is not None and cell.high_s is not None
    assert (cell.tick_s, cell.low_s) == (32e-9, pytest.approx(plain[0] - 32e-9))
    assert plain[1] < cell.high_s <= plain[1] + 32.1e-9, "where the visits do not reach further"


def test_with_a_host_clock_operations_are_timed_one_by_one() -> None:
    for _ in range(20):  # a busy machine makes operations longer, never shorter
        batch = HostClockBatches(SoloControl()).take([timed(200e-6)] * 9, 200e-6)
        middle = sorted(batch.durations_s[0])[4]
        if middle < 220e-6:
            break
    assert middle == pytest.approx(200e-6, rel=0.1)
    assert batch.late_s == [[0.0] * 9]
    assert batch.launch_s == []


def test_one_process_has_one_clock() -> None:
    assert Clocks(SoloControl()).offset_s() == 0.0
    assert identity() == identity() != ""


def test_no_lateness_for_collectives_that_end_early() -> None:
    simulation = engine(alpha_us=20.0, late_rank=2, late_us=100.0)
    samples = visited(simulation, Sampling(max_time_s=60))
    free = adaptive_timing.cell(
        samples, Sampling(max_time_s=60), 1, BandwidthFactors(1e6, 1.0), synchronizes=False
    )
    assert (free.op_s, free.skew_s, free.late_s, free.ends_s) == (None, None, None, None)
    assert adaptive_timing.cell(
        samples, Sampling(max_time_s=60), 1, BandwidthFactors(1e6, 1.0)
    ).skew_s == pytest.approx(100e-6, rel=1e-3)


def test_the_end_of_each_rank_counts_from_the_first_start() -> None:
    class Two(SoloControl):
        def gather(self, value: object) -> list[object]:
            return [value, (0, [[3e-3]], [[1e-3]]) if isinstance(value, tuple) else value]

    simulation = engine(2, alpha_us=20.0)
    samples = visited(simulation, Sampling(fixed=8), Two())
    cell = adaptive_timing.cell(
        samples, Sampling(fixed=8), 2, BandwidthFactors(1e6, 1.0), synchronizes=False, uneven=True
    )
    assert cell.ends_s == pytest.approx([10e-6, 10e-6, 2e-3], rel=0.01), "of one of two operations"


def test_lateness_of_independent_groups() -> None:
    class Two(SoloControl):
        def gather(self, value: object) -> list[object]:
            return [value, (1, [[1e-3]], []) if isinstance(value, tuple) else value]

    simulation = engine(2, alpha_us=20.0)
    samples = visited(simulation, Sampling(fixed=8), Two())
    cell = adaptive_timing.cell(samples, Sampling(fixed=8), 1, BandwidthFactors(1e6, 1.0))
    assert cell.time_s == pytest.approx(1e-3), "the slower group"
    assert cell.late_s == [0.0, 0.0, 0.0], "no rank waited for the other group"


def test_a_program_that_blocks_on_every_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(NoMeasurement, match="CUDA_LAUNCH_BLOCKING=1"):
        HeldBatches(engine(), SPEC)


def test_samples_of_a_slowed_gpu_are_repeated_and_never_precise() -> None:
    answers = iter([True, True, False, *[False] * 7])
    cell = adaptive_timing.cell(
        visited(engine(), Sampling(), throttled=lambda: next(answers)),
        Sampling(),
        1,
        BandwidthFactors(1e6, 1.0),
    )
    assert (cell.visits, cell.stopped) == ([SAMPLES_PER_VISIT] * 8, "ok"), (
        "the third take was of a GPU at full speed"
    )
    slow = adaptive_timing.cell(
        visited(engine(), Sampling(), throttled=lambda: True),
        Sampling(),
        1,
        BandwidthFactors(1e6, 1.0),
    )
    assert (slow.visits, slow.stopped) == ([SAMPLES_PER_VISIT] * 8, "unstable")
