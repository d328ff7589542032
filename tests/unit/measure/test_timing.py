"""The classic loop: what is timed, in which order, and the effects of -m, -z, -I, -C and -T.

Time is virtual, so figures are exact.
"""

from collections.abc import Callable
from typing import Any

import pytest

from busbw.core.errors import NoMeasurement
from busbw.engines.base import CollectiveCall, Launch

from .conftest import Noting

Measure = Callable[..., Any]
OPERATION_S = 10e-6 + 1024 / 100e9  # of 1024 bytes of broadcast, whose busbw is its algbw


def test_the_steps_of_a_classic_cell(measured: Measure) -> None:
    measurement = measured("broadcast")
    cell = ["launch", "wait", "barrier", "launch", "launch", "launch", "wait", "barrier"]
    assert measurement.words == cell + cell
    assert [cell.time_s for cell in measurement.cells] == pytest.approx([OPERATION_S] * 2)


def test_only_a_barrier_follows_the_untimed_operation(measured: Measure) -> None:
    class Binding(Noting):
        def bind(self, call: CollectiveCall) -> Launch:
            self.log.append(("bind",))
            return super().bind(call)

    words = measured("broadcast", kind=Binding).words
    clock = words.index("barrier") + 1
    assert words[clock - 4 : clock] == ["bind", "launch", "wait", "barrier"]


def test_check_timed_skips_the_untimed_operation(measured: Measure) -> None:
    words = measured("broadcast", check_timed=True, check=1).words
    assert words[: words.index("barrier")].count("launch") == 1, "the one checked before timing"


def test_out_of_place_comes_first(measured: Measure) -> None:
    assert [
        entry[1].in_place
        for entry in measured("broadcast", iters=1).engine.log
        if entry[0] == "launch"
    ] == [False, False, True, True]


def test_bandwidths_follow_from_the_time(measured: Measure) -> None:
    for cell in measured("all_reduce", ranks=4).cells:
        assert cell.algbw == pytest.approx(1024 / cell.time_s)
        assert cell.busbw == pytest.approx(cell.algbw * 2 * 3 / 4)


def test_aggregated_operations_report_the_time_of_one(measured: Measure) -> None:
    measurement = measured("broadcast", agg_iters=4, per_iter_timing=1)
    assert [entry for entry in measurement.timed() if entry[0] == "group"] == [("group", 4)] * 3
    assert [entry[0] for entry in measurement.timed()].count("launch") == 12
    assert measurement.cells[0].time_s == pytest.approx(OPERATION_S)
    assert measurement.cells[0].samples_s == pytest.approx([OPERATION_S] * 3)


@pytest.mark.parametrize(
    ("mode", "per_operation"),
    [
        (0, ["launch"]),
        (1, ["launch", "wait", "barrier"]),
        (2, ["launch", "wait"]),
        (3, ["launch", "wait", "barrier"]),
        (7, ["launch", "wait"]),
    ],
)
def test_z_waits_or_synchronizes_after_each_operation(
    measured: Measure, mode: int, per_operation: list[str]
) -> None:
    words = measured("broadcast", blocking=mode).words
    start = words.index("barrier") + 1
    assert words[start : start + 3 * len(per_operation) + 2] == [
        *per_operation * 3,
        "wait",
        "barrier",
    ]


@pytest.mark.parametrize(("mode", "barriers"), [(0, 0), (1, 1), (2, 0), (3, 0)])
def test_only_z_1_times_its_barriers(measured: Measure, mode: int, barriers: int) -> None:
    measurement = measured("broadcast", blocking=mode, barrier_s=1.0)
    assert measurement.cells[0].time_s == pytest.approx(OPERATION_S + barriers)


def test_i_marks_the_boundaries_of_back_to_back_iterations(measured: Measure) -> None:
    measurement = measured("broadcast", per_iter_timing=1)
    marks = ["mark", "launch", "mark", "launch", "mark", "launch", "mark", "wait"]
    assert [entry[0] for entry in measurement.timed()] == marks
    assert [entry[1] for entry in measurement.timed() if entry[0] == "mark"] == [0, 1, 2, 3]
    assert measurement.cells[0].samples_s == pytest.approx([OPERATION_S] * 3)


def test_per_iteration_samples_exclude_barriers(measured: Measure) -> None:
    measurement = measured("broadcast", per_iter_timing=1, blocking=3, barrier_s=1.0)
    assert measurement.cells[0].samples_s == pytest.approx([OPERATION_S] * 3)
    assert measurement.cells[0].time_s == pytest.approx(OPERATION_S)
    assert [entry[1] for entry in measurement.engine.log if entry[0] == "mark"] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ] * 2


def test_samples_sum_to_the_time(measured: Measure) -> None:
    for cell in measured("broadcast", per_iter_timing=1, iters=50, sim={"noise": 0.2}).cells:
        assert len(cell.samples_s) == 50
        assert len(set(cell.samples_s)) > 40
        assert sum(cell.samples_s) / 50 == pytest.approx(cell.time_s)


def test_skipped_samples_are_counted_but_kept(measured: Measure) -> None:
    cell = measured("broadcast", per_iter_timing=1, per_iter_skip=2, iters=5).cells[0]
    assert (cell.skipped, len(cell.samples_s)) == (2, 5)


def test_without_i_there_are_no_samples(measured: Measure) -> None:
    cell = measured("broadcast").cells[0]
    assert (cell.samples_s, cell.process_samples_s, cell.skipped) == (None, None, 0)


def test_cpu_time_is_reported_with_the_gpu_time(measured: Measure) -> None:
    assert measured("broadcast").cells[0].cpu_time_s is None
    cell = measured("broadcast", report_cputime=1).cells[0]
    # a simulated operation is done when it returns
    assert cell.cpu_time_s == pytest.approx(cell.time_s)


def test_t_limits_every_wait(measured: Measure) -> None:
    assert {
        entry[1] for entry in measured("broadcast", timeout=7).engine.log if entry[0] == "wait"
    } == {7}


def test_no_iterations_give_a_row_whose_time_is_not_zero(measured: Measure) -> None:
    cell = measured("broadcast", iters=0).cells[0]
    assert 0 < cell.time_s < 1e-6


def test_cuda_graphs_are_refused_by_an_engine_without_them(measured: Measure) -> None:
    with pytest.raises(NoMeasurement, match="-G: the sim engine has no CUDA graphs"):
        measured("broadcast", cudagraph=1)
