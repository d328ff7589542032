"""The order of a sweep: warm-up, rotation of buffers, cycles and check rounds, and the fields of
each row.
"""

import itertools
import math
import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from busbw.core.collectives import Collective
from busbw.core.dtypes import DTYPES, DType
from busbw.core.errors import NoMeasurement
from busbw.core.redops import REDOPS, RedOp
from busbw.core.result import Mismatch
from busbw.core.sweep import OF_SIZES, Sampling, SweepSpec
from busbw.engines.base import CollectiveCall
from busbw.engines.sim import SimEngine
from busbw.measure import batches, cell_run, runner
from busbw.measure.job import SweepJob
from busbw.measure.sweep import settled

Measure = Callable[..., Any]


def shifts(entries: list[tuple[Any, ...]]) -> list[int]:
    return [entry[1].shift_bytes for entry in entries if entry[0] == "launch"]


def test_iterations_take_the_buffer_positions_in_turn(measured: Measure) -> None:
    assert shifts(measured("broadcast", max_bytes=4096, step_factor=8, iters=6).timed()) == [
        0,
        1024,
        2048,
        3072,
        0,
        1024,
    ]
    assert shifts(measured("broadcast", max_bytes=3000, step_factor=8, iters=5).timed()) == [
        0,
        1024,
        0,
        1024,
        0,
    ]
    assert shifts(measured("broadcast", iters=3).timed()) == [0, 0, 0], (
        "a single size keeps its offset"
    )


def test_buffer_rotation_and_unalignment_offsets(measured: Measure) -> None:
    # 1000 bytes over two ranks are parts of 496 bytes: 992.
    assert shifts(
        measured("all_gather", min_bytes=1000, max_bytes=4000, step_factor=8, iters=5).timed()
    ) == [0, 992, 1984, 2976, 0]
    assert shifts(measured("broadcast", max_bytes=2048, step_factor=8, unalign=3).timed()) == [
        12,
        1036,
        12,
    ]


def test_warm_up_runs_powers_of_two_out_of_place_once_a_series(measured: Measure) -> None:
    measurement = measured(
        "reduce", min_bytes=64, max_bytes=256, step_factor=4, warmup_iters=2, iters=0, root="all"
    )
    launches = [
        (entry[1].send * 4, entry[1].in_place)
        for entry in measurement.engine.log
        if entry[0] == "launch"
    ]
    series = [(size, False) for size in (64, 64, 128, 128, 256, 256)] + [
        (64, False),
        (64, True),
        (256, False),
        (256, True),
    ]
    assert launches == series * 2


def test_rows_come_in_order_of_type_operator_root_and_size(measured: Measure) -> None:
    measurement = measured(
        "reduce", min_bytes=64, max_bytes=128, root="all", op="all", datatype="half", iters=1
    )
    assert [(row.dtype, row.op, row.root, row.size_bytes) for row in measurement.rows] == [
        ("half", op.name, root, size) for op in REDOPS for root in (0, 1) for size in (64, 128)
    ]


def test_warm_up_of_precise_timing_depends_on_size(
    measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "WARM_UP_BYTES", 128)
    monkeypatch.setattr(batches, "LEAD_IN_S", 0.0)

    def launches_before_the_samples() -> list[int]:
        measurement = measured(
            "broadcast",
            min_bytes=64,
            max_bytes=256,
            step_factor=4,
            warmup_iters=1,
            check=1,
            sampling=Sampling(fixed=1),
        )
        words = [
            entry[0] if entry[0] != "launch" else entry[1].send * 4
            for entry in measurement.engine.log
        ]
        begun = words.index(64)  # after the marks that measure the clock itself
        return [
            word for word in words[begun : words.index("mark", begun)] if word in (64, 128, 256)
        ]

    with_untimed = launches_before_the_samples()
    monkeypatch.setattr(cell_run, "LONG_S", 0.0)  # every operation is long
    spared = launches_before_the_samples()
    assert with_untimed[:2] == spared[:2] == [64, 128]
    assert len(with_untimed) == len(spared) + cell_run.UNTIMED_OPERATIONS


def test_all_sizes_are_visited_before_one_is_visited_again(measured: Measure) -> None:
    measurement = measured("broadcast", max_bytes=4096, check=1, sampling=Sampling(max_time_s=60))
    sizes = [entry[1].send * 4 for entry in measurement.engine.log if entry[0] == "launch"]
    runs = [size for size, _ in itertools.groupby(sizes)]
    assert len(runs) > 2 * 8, (
        "eight visits of each of three sizes at least; the last of one pass may be the first of the"
        " next"
    )
    orders = {tuple(runs[start : start + 3]) for start in range(len(runs) - 2)}
    assert len(orders) > 3, "in another order each time"
    assert all(cell.visits and len(cell.visits) >= 8 for cell in measurement.cells)
    assert all(cell.wrong == 0 for cell in measurement.cells if cell.wrong is not None)


def test_rows_are_reported_after_their_first_visit_and_when_they_are_final(
    measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INTERIM_S", math.inf)
    measurement = measured("broadcast", max_bytes=4096, sampling=Sampling(max_time_s=60))
    first, last = measurement.events[:3], measurement.events[3:]
    assert [(event.number, event.final, event.row.size_bytes) for event in first] == [
        (0, False, 1024),
        (1, False, 2048),
        (2, False, 4096),
    ]
    assert [(event.number, event.final, event.row.size_bytes) for event in last] == [
        (0, True, 1024),
        (1, True, 2048),
        (2, True, 4096),
    ]
    cells = [event.row.out_of_place for event in measurement.events]
    assert [cell.stopped for cell in cells] == ["interrupted"] * 3 + ["ok"] * 3
    assert [cell.low_s is None for cell in cells] == [True] * 3 + [False] * 3


def test_an_interrupted_run_has_the_samples_of_later_visits(
    measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INTERIM_S", 0.0)
    monkeypatch.setattr(runner, "INTERIM_SHARE", math.inf)
    measurement = measured("broadcast", max_bytes=2048, sampling=Sampling(max_time_s=60))
    for size in (1024, 2048):
        events = [event for event in measurement.events if event.row.size_bytes == size]
        made = [len(event.row.out_of_place.visits) for event in events if not event.final]
        assert made[:7] == [1, 2, 3, 4, 5, 6, 7], "after every round"


def test_the_first_round_shows_no_remaining_time(measured: Measure) -> None:
    measurement = measured("broadcast", max_bytes=8192, sampling=Sampling(max_time_s=60))
    is_shown = [left_s is not None for left_s in measurement.left_s]
    assert is_shown == sorted(is_shown)
    assert any(is_shown)
    assert is_shown.index(True) > len(measurement.rows), "all sizes were visited"


def test_cycles_repeat_every_row(measured: Measure) -> None:
    rows = measured("broadcast", max_bytes=2048, run_cycles=3).rows
    assert [row.size_bytes for row in rows] == [1024, 2048] * 3


def test_a_soak_repeats_the_sweep_for_its_time(measured: Measure) -> None:
    start = time.monotonic()
    measurement = measured("broadcast", max_bytes=2048, check=2, soak_s=0.3)
    assert time.monotonic() - start >= 0.3
    assert len(measurement.rows) > 2
    assert [row.size_bytes for row in measurement.rows[:4]] == [1024, 2048] * 2
    assert all(cell.wrong == 0 for cell in measurement.cells)
    assert all(left_s < 0.3 for left_s in measurement.left_s)
    assert measurement.left_s == sorted(measurement.left_s, reverse=True)


def test_a_soak_stops_after_the_row_with_wrong_data(measured: Measure) -> None:
    measurement = measured(
        "all_reduce", max_bytes=4096, check=1, soak_s=60.0, kind=BadFromThirdRound
    )
    assert [row.size_bytes for row in measurement.rows] == [1024, 2048], (
        "the third check is that of 2 KiB out of place"
    )
    assert [row.out_of_place.wrong for row in measurement.rows] == [0, 1]
    assert measurement.rows[1].out_of_place.mismatches[0].rank == 1


def test_a_row_records_its_operator_and_root(measured: Measure) -> None:
    (row,) = measured("all_reduce", datatype="bf16", op="mean", iters=7).rows
    assert (row.size_bytes, row.count, row.dtype, row.op) == (1024, 512, "bfloat16", "avg")
    assert (row.root, row.iters, row.timestamp) == (-1, 7, "")
    (row,) = measured("broadcast", report_timestamps=1).rows
    age = datetime.now() - datetime.strptime(row.timestamp, "%Y-%m-%d %H:%M:%S")
    assert abs(age.total_seconds()) < 60


@pytest.mark.parametrize(
    "name",
    ["all_gather", "reduce_scatter", "gather", "scatter", "alltoall", "alltoallv", "hypercube"],
)
def test_8_bytes_of_float_on_two_ranks_give_an_empty_row(measured: Measure, name: str) -> None:
    (row,) = measured(name, min_bytes=8, max_bytes=8, check=1).rows
    cell = row.out_of_place
    assert (row.size_bytes, row.count, cell.busbw, cell.wrong) == (0, 0, 0, 0)
    assert cell.time_s > 0


def test_hypercube_on_three_ranks_leaves_the_table_empty(measured: Measure) -> None:
    measurement = measured("hypercube", ranks=3)
    assert (measurement.rows, measurement.notes) == ([], ["nRanks 3 is not a power of 2, skipping"])


# -- checks ----------------------------------------------------------------------------------------


def test_an_unchecked_cell_has_no_wrong_count(measured: Measure) -> None:
    assert [cell.wrong for cell in measured("all_reduce", check=0).cells] == [None, None]
    assert [cell.wrong for cell in measured("alltoall", check=1).cells] == [0, None], (
        "in place it is timed but has no defined result"
    )


def test_each_round_is_checked_on_new_data(measured: Measure) -> None:
    measurement = measured("all_reduce", check=4)
    before_timing = measurement.words[: measurement.words.index("barrier")]
    assert before_timing == ["launch", "wait"] * 5, (
        "the last is the untimed one before timing starts"
    )
    assert [cell.wrong for cell in measurement.cells] == [0, 0]
    assert measurement.runner.out_of_bounds == 0


def test_wrong_data_is_counted_and_described_with_its_offset(measured: Measure) -> None:
    measurement = measured(
        "all_reduce",
        ranks=4,
        check=1,
        datatype="int8",
        sim={"corrupt_rank": 2, "corrupt_offset": 100},
    )
    assert measurement.runner.out_of_bounds == 2, "one for each placement"
    for cell in measurement.cells:
        assert cell.wrong == 1
        (mismatch,) = cell.mismatches
        assert (mismatch.rank, mismatch.offset, mismatch.wrong) == (2, 100, 1)
        assert int(mismatch.expected) ^ 1 == int(mismatch.got)


def test_rounds_stop_at_the_first_bad_one(measured: Measure) -> None:
    measurement = measured("all_reduce", check=5, sim={"corrupt_rank": 0})
    assert measurement.words[: measurement.words.index("barrier")] == ["launch", "wait"] * 2
    assert measurement.runner.out_of_bounds == 2
    assert [cell.wrong for cell in measurement.cells] == [1, 1]


class BadFromThirdRound(SimEngine):
    """Right twice, then wrong."""

    def _corrupt(self, call: CollectiveCall) -> None:
        self.rounds = getattr(self, "rounds", 0) + 1
        if self.rounds >= 3:
            self.view(call, "recv", 1)[0] ^= 0x80


def test_a_later_round_finds_errors_the_first_missed(measured: Measure) -> None:
    assert measured("all_reduce", check=2, kind=BadFromThirdRound).rows[0].out_of_place.wrong == 0
    out_of_place, in_place = measured("all_reduce", check=5, kind=BadFromThirdRound).cells
    assert (out_of_place.wrong, in_place.wrong) == (1, 1)


class BadWhereShifted(SimEngine):
    """Wrong in every operation except those at the start of the buffers, which ordinary checks
    examine.
    """

    def _corrupt(self, call: CollectiveCall) -> None:
        if call.shift_bytes:
            self.view(call, "recv", 1)[4] ^= 0x40


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "broadcast", "scatter"])
def test_check_timed_finds_errors_that_ordinary_checks_miss(measured: Measure, name: str) -> None:
    fields = {
        "kind": BadWhereShifted,
        "max_bytes": 4096,
        "step_factor": 8,
        "check": 1,
        "datatype": "int32",
    }
    blind, seeing = measured(name, **fields), measured(name, **fields, check_timed=True)
    assert [cell.wrong for cell in blind.cells] == [0, 0]
    out_of_place, in_place = seeing.cells
    assert out_of_place.wrong == 2, "iterations 1 and 2 of 3 are shifted"
    assert [(m.rank, m.offset) for m in out_of_place.mismatches] == [(1, 1), (1, 1)]
    # An in-place reduction changes its own input, so the results of later iterations are unknown.
    assert in_place.wrong == (0 if name == "all_reduce" else 2)
    assert seeing.runner.out_of_bounds == (2 if name == "all_reduce" else 4)


@pytest.mark.parametrize("grouped", [1, 3])
def test_check_timed_checks_only_offsets_precise_timing_wrote(
    measured: Measure, grouped: int
) -> None:
    fields = {
        "check": 1,
        "check_timed": True,
        "max_bytes": 65536,
        "step_factor": 8,
        "agg_iters": grouped,
        "sampling": Sampling(max_time_s=60),
    }
    assert [cell.wrong for cell in measured("broadcast", **fields).cells] == [0] * 6


def test_check_timed_passes_correct_data_and_requires_checks(measured: Measure) -> None:
    assert [
        cell.wrong
        for cell in measured(
            "alltoall", check=1, check_timed=True, max_bytes=4096, step_factor=8
        ).cells
    ] == [0, None]
    assert [cell.wrong for cell in measured("all_reduce", check=0, check_timed=True).cells] == [
        None,
        None,
    ]


class AllWrong(SimEngine):
    """Corrupts every element of every rank."""

    def _corrupt(self, call: CollectiveCall) -> None:
        for rank in self.ranks:
            self.view(call, "recv", rank)[:] ^= 1


def test_wrong_elements_are_counted_and_eight_kept(measured: Measure) -> None:
    cell = measured("broadcast", ranks=10, check=1, datatype="int32", kind=AllWrong).cells[0]
    assert cell.wrong == 10 * 256
    assert [(m.rank, m.offset, m.wrong) for m in cell.mismatches] == [
        (rank, 0, 256) for rank in range(8)
    ]
    assert all(isinstance(m, Mismatch) for m in cell.mismatches)


# -- what an engine cannot run ---------------------------------------------------------------------


class NoHalf(SimEngine):
    """Refuses one type."""

    def unsupported(self, collective: Collective, dtype: DType, op: RedOp | None) -> str | None:
        return "no half here" if dtype.name == "half" else None


def test_all_types_skips_unsupported_ones_with_a_note(measured: Measure) -> None:
    measurement = measured("all_reduce", datatype="all", iters=1, kind=NoHalf)
    assert [row.dtype for row in measurement.rows] == [
        row.name for row in DTYPES if row.name != "half"
    ]
    assert measurement.notes == ["skipped half sum: no half here"]


def test_a_single_unsupported_type_is_refused(measured: Measure) -> None:
    with pytest.raises(NoMeasurement, match=re.escape("all_reduce of half sum: no half here")):
        measured("all_reduce", datatype="half", kind=NoHalf)


class OneMebibyte(SimEngine):
    """A machine with little memory."""

    def memory_bytes(self) -> int | None:
        return 1 << 20


def test_little_memory_lowers_both_size_limits(measured: Measure) -> None:
    assert [
        row.size_bytes
        for row in measured(
            "broadcast", max_bytes=1 << 30, kind=OneMebibyte, step_factor=10, iters=1
        ).rows
    ] == [1024, 10240, 102400]
    cap = (1 << 20) // 2 // 2
    assert [
        row.size_bytes
        for row in measured(
            "broadcast", min_bytes=1 << 29, max_bytes=1 << 30, kind=OneMebibyte, iters=1
        ).rows
    ] == [cap]


def test_uneven_alltoallv_on_ranks_of_one_process(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "matrix").write_text("0 640 16\n160 48 0\n0 32 320\n")
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", str(tmp_path / "matrix"))
    (row,) = measured("alltoallv", ranks=3, check=1).rows
    assert (row.size_bytes, row.count, row.out_of_place.wrong) == (720, 0, 0)
    (row,) = measured(
        "alltoallv", ranks=3, check=1, sim={"corrupt_rank": 2, "corrupt_offset": 3}
    ).rows
    assert [(m.rank, m.offset) for m in row.out_of_place.mismatches] == [(2, 3)]


def test_a_sweep_whose_time_is_up_has_each_size_once(measured: Measure) -> None:
    sampling = Sampling(max_time_s=60, sweep_s=1e-9)
    for cell in measured("all_reduce", sampling=sampling, max_bytes=4096).cells:
        assert (cell.stopped, len(cell.visits or ()), cell.low_s) == ("budget", 1, None)


@pytest.mark.parametrize(
    ("given", "fields", "on_cpus"),
    [
        ("", {}, (8, 32 << 20, 4, 30.0)),
        ("max_time", {}, (8, 32 << 20, 4, 0.0)),
        ("", {"soak_s": 60.0}, (8, 32 << 20, 4, 0.0)),
        ("", {"sampling": Sampling(fixed=20)}, (8, 32 << 20, 4, 0.0)),
        ("step_factor", {"step_factor": 8}, (8, 32 << 20, 8, 0.0)),
        ("min_bytes", {"min_bytes": 64 << 20}, (64 << 20, 64 << 20, 2, 0.0)),
        ("max_bytes", {"max_bytes": 1 << 30}, (8, 1 << 30, 2, 0.0)),
    ],
)
def test_cpus_have_a_short_sweep_unless_it_is_chosen(given, fields, on_cpus) -> None:
    chosen = {"step_factor": 2, "sampling": Sampling(precision=0.0)} | fields
    unset = tuple(name for name in (*OF_SIZES, "max_time") if name != given)
    job = SweepJob(sweep=SweepSpec(collective="all_reduce", **chosen), unset=unset)

    def sweep(*, asynchronous: bool) -> tuple[float, ...]:
        spec = settled(job, SimpleNamespace(asynchronous=asynchronous)).sweep
        sampling_s = spec.sampling.sweep_s
        return spec.min_bytes, spec.max_bytes, spec.step_factor, sampling_s

    assert sweep(asynchronous=False) == on_cpus
    asked = job.sweep
    assert sweep(asynchronous=True) == (asked.min_bytes, asked.max_bytes, asked.step_factor, 0.0)
