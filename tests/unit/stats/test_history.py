"""Which runs are of one machine, and whether a run differs from the last ones."""

import importlib.util
import random
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from busbw.core.cells import CellKey, cells
from busbw.core.history import MIN_RUNS, HistoryBasis, HistoryCheck, Standing, machine
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.history.run_keys import stored
from busbw.stats.history import _nearest, check, needed

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 11, 21, 18, 0, 0)
Times = dict[CellKey, float]


def run(
    draw: random.Random,
    slower: dict[int, float] | None = None,
    sizes: int = 20,
    spread: float = 0.01,
) -> Result:
    """Mean times of sizes 8, 16, ...; all of one run drift together, and `slower` ones take so
    many times as long.
    """
    drift = draw.gauss(0, spread)
    rows = []
    for i in range(sizes):
        time_s = 1e-4 * 2.718281828 ** (drift + draw.gauss(0, spread)) * (slower or {}).get(i, 1.0)
        rows.append(ResultRow(8 << i, 2 << i, "float", "sum", -1, Cell(time_s, 1e9, 1e9), None, 20))
    return Result(SweepSpec(collective="all_reduce"), rows=rows, complete=True)


def times(result: Result) -> Times:
    return {key: cell.time_s for key, cell in cells(result)}


def earlier(draw: random.Random, count: int) -> dict[int, Times]:
    return {i: times(run(draw)) for i in range(count)}


def checked(new: Result, count: int = 19, confidence: float = 0.95, seed: int = 1) -> HistoryCheck:
    return check(new, earlier(random.Random(seed), count), confidence)


def test_a_size_that_became_slower_is_named_with_its_former_time() -> None:
    regression = checked(run(random.Random(9), {7: 1.3}))
    assert regression.standing is Standing.SLOWER
    (cell,) = [cell for cell in regression.cells if cell.slower]
    assert cell.key.size_bytes == 8 << 7
    assert cell.ratio == pytest.approx(1.3, abs=0.06)
    assert cell.low_s < cell.median_s < cell.high_s < cell.time_s


def test_a_run_like_the_others_or_faster_is_fine() -> None:
    assert checked(run(random.Random(9))).standing is Standing.FINE
    assert checked(run(random.Random(9), dict.fromkeys(range(20), 0.5))).standing is Standing.FINE


@pytest.mark.parametrize(("confidence", "count"), [(0.95, 19), (0.9, 9), (0.99, 99), (0.51, 2)])
def test_the_runs_needed_for_a_check_by_order(confidence: float, count: int) -> None:
    assert needed(confidence) == count
    slow = run(random.Random(9), {7: 5.0})
    regression = checked(slow, count, confidence)
    assert (regression.standing, regression.basis) == (Standing.SLOWER, HistoryBasis.ORDER)
    fewer = checked(slow, count - 1, confidence)
    assert (fewer.basis, fewer.needed) == (
        HistoryBasis.SPREAD if count > MIN_RUNS else HistoryBasis.NONE,
        count,
    )


def test_three_runs_show_a_large_change_and_two_do_not() -> None:
    slow = run(random.Random(9), {7: 3.0})
    regression = checked(slow, 3)
    assert (regression.standing, regression.basis, regression.alarm) == (
        Standing.SLOWER,
        HistoryBasis.SPREAD,
        0.05,
    )
    assert [cell.key.size_bytes for cell in regression.cells if cell.slower] == [8 << 7]
    two_runs = checked(slow, 2)
    assert (two_runs.standing, two_runs.basis) == (Standing.UNKNOWN, HistoryBasis.NONE)
    assert not any(cell.slower for cell in two_runs.cells)


def test_few_runs_are_fine_only_if_no_cell_can_be_slower_by_more_than_the_tolerance() -> None:
    past, new = earlier(random.Random(1), 6), run(random.Random(9))
    bounds = [cell.most for cell in check(new, past, 0.95, 0.1).cells]
    limit = max(value for value in bounds if value is not None) - 1
    assert 0.02 < limit < 1
    assert check(new, past, 0.95, limit + 1e-6).standing is Standing.FINE
    assert check(new, past, 0.95, limit - 1e-6).standing is Standing.UNKNOWN


@pytest.mark.parametrize(
    ("at", "by"), [(7, 2.0), (3, 2.0), (7, 0.4)], ids=["slow there", "slow elsewhere", "fast there"]
)
def test_one_unusual_run_does_not_make_a_slow_size_fine(at: int, by: float) -> None:
    past, slow = earlier(random.Random(1), 19), run(random.Random(9), {7: 1.3})
    past[5] = times(run(random.Random(5), {at: by}))
    regression = check(slow, past, 0.95)
    assert (regression.standing, regression.unusual) == (Standing.UNKNOWN, [5])
    assert [cell.key.size_bytes for cell in regression.cells if cell.far] == [8 << 7]
    assert check(run(random.Random(9)), past, 0.95).standing is Standing.FINE
    del past[5]
    assert check(slow, past, 0.95).standing is Standing.SLOWER


def test_an_unusual_run_among_few_is_named() -> None:
    past = earlier(random.Random(1), 5) | {5: times(run(random.Random(5), {7: 9.0}))}
    regression = check(run(random.Random(9), {7: 1.3}), past, 0.95)
    assert (regression.standing, regression.unusual) == (Standing.UNKNOWN, [5])


def test_a_size_that_is_slow_in_many_runs_is_usual() -> None:
    past = earlier(random.Random(1), 15) | {
        i: times(run(random.Random(i), {7: 2.0})) for i in range(15, 19)
    }
    regression = check(run(random.Random(9), {7: 1.6}), past, 0.95)
    assert (regression.standing, regression.unusual) == (Standing.FINE, [])


def test_equal_times_give_no_spread() -> None:
    past = {i: times(run(random.Random(1))) for i in range(3)}
    regression = check(run(random.Random(1), {7: 1.5}), past, 0.95)
    assert regression.standing is Standing.UNKNOWN
    assert {cell.most for cell in regression.cells} == {None}


def test_enormous_spreads_do_not_overflow() -> None:
    past = {
        i: times(run(random.Random(i), dict.fromkeys(range(20), 10.0 ** (3 * i)))) for i in range(3)
    }
    assert check(run(random.Random(9)), past, 0.9999).standing is Standing.UNKNOWN


@pytest.fixture
def rates() -> Iterator[ModuleType]:
    """benchmarks/history_rates.py, which records the same figures over 2000 checks."""
    spec = importlib.util.spec_from_file_location(
        "history_rates", ROOT / "benchmarks" / "history_rates.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["history_rates"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["history_rates"]


@pytest.mark.parametrize(("kind", "highest"), [("normal", 0.02), ("skewed", 0.07)])
def test_false_alarms_with_few_runs_are_as_rare_as_recorded(
    rates: ModuleType, kind: str, highest: float
) -> None:
    for runs in (3, 5):
        assert (
            rates.alarms(rates.checks(random.Random(4), getattr(rates, kind), runs, 60)) <= highest
        )


def test_no_history_at_all_is_unknown() -> None:
    assert check(run(random.Random(9)), {}, 0.95).standing is Standing.UNKNOWN
    assert (
        check(run(random.Random(9), sizes=0), earlier(random.Random(1), 30), 0.95).standing
        is Standing.UNKNOWN
    )


def test_runs_that_lack_a_cell_or_its_time_do_not_count() -> None:
    past = earlier(random.Random(1), 19)
    key = next(iter(past[3]))
    assert check(run(random.Random(9)), past, 0.95).runs == list(range(19))
    past[3][key] = float("nan")
    del past[5][key]
    regression = check(run(random.Random(9)), past, 0.95)
    assert regression.runs == [i for i in range(19) if i not in (3, 5)]
    assert regression.basis is HistoryBasis.SPREAD


def test_false_alarms_over_the_whole_sweep_are_as_rare_as_stated() -> None:
    draw, alarms, trials = random.Random(3), 0, 300
    for _ in range(trials):
        regression = check(run(draw), {i: times(run(draw)) for i in range(20)}, 0.95)
        alarms += regression.standing is Standing.SLOWER
        assert regression.alarm == pytest.approx(1 / 21)
    assert alarms / trials <= 1 / 21 + 0.034  # 2.8 standard deviations


def test_repeats_of_a_run_count_by_their_median() -> None:
    new = run(random.Random(9))
    slow = [
        msgspec.structs.replace(row, repeat=repeat)
        for repeat, by in ((1, {7: 9.0}), (2, {}))
        for row in run(random.Random(8), by).rows
    ]
    regression = checked(msgspec.structs.replace(new, rows=[*new.rows, *slow]))
    assert len(regression.cells) == 20
    assert regression.standing is Standing.FINE


def test_a_machine_is_its_hosts_devices_and_engine_in_any_order() -> None:
    devices = [RankDevice(i, 1, f"h{2 - i}", 0, "", "NVIDIA H200") for i in range(2)]
    result = msgspec.structs.replace(
        run(random.Random(1)), world=World(devices, 2), library=EngineLibrary("nccl", 22809)
    )
    assert machine(result) == "h1+h2: 2 x NVIDIA H200, nccl"
    assert machine(msgspec.structs.replace(result, world=World(devices[::-1], 2))) == machine(
        result
    )
    assert machine(run(random.Random(1))) == "unnamed host: unnamed engine"


def test_when_a_run_began_in_one_form_or_when_it_was_added() -> None:
    result = run(random.Random(1))
    starts = {
        "2026-11-20T08:09:10+00:00": "2026-11-20 08:09:10",
        "2026-11-20 08:09:10": "2026-11-20 08:09:10",
        "": "2026-11-21 18:00:00",
    }
    assert {
        start: stored(msgspec.structs.replace(result, start=start), NOW).start for start in starts
    } == starts


def test_the_nearest_sizes_of_a_cell_are_five_of_its_own_series() -> None:
    keys = [
        CellKey("float", "sum", -1, size, "out_of_place")
        for size in (8, 16, 32, 64, 128, 256, 512, 1024)
    ]
    spread = {key: 1.0 / key.size_bytes for key in keys} | {
        msgspec.structs.replace(keys[3], placement="in_place"): 9.0
    }
    nearest_sizes = {
        key.size_bytes: [round(1 / value) for value in _nearest(spread, key)] for key in keys
    }
    assert nearest_sizes[8] == nearest_sizes[16] == nearest_sizes[32] == [8, 16, 32, 64, 128]
    assert (nearest_sizes[64], nearest_sizes[128]) == (
        [16, 32, 64, 128, 256],
        [32, 64, 128, 256, 512],
    )
    assert (
        nearest_sizes[256] == nearest_sizes[512] == nearest_sizes[1024] == [64, 128, 256, 512, 1024]
    )
    assert _nearest(dict.fromkeys(keys[:2], 1.0), keys[1]) == [1.0, 1.0]


def test_a_probability_is_at_most_one_and_the_tolerance_belongs_to_it() -> None:
    cells = checked(run(random.Random(9), dict.fromkeys(range(20), 0.9)), 4).cells
    assert max(cell.p for cell in cells) == 1.0
    cell = msgspec.structs.replace(cells[0], most=1.1)
    assert (
        cell.within(0.1),
        cell.within(0.09),
        msgspec.structs.replace(cell, most=None).within(9.0),
    ) == (True, False, False)
