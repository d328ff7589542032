"""Which runs and cells are compared, and the verdict on each cell."""

import importlib.util
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from busbw.core.alltoallv import traffic
from busbw.core.cells import CellKey, cells
from busbw.core.comparison import ComparedCell, Comparison, ComparisonVerdict
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.topology import Host, Topology
from busbw.report.read import read
from busbw.stats.compare import Named, compare
from busbw.stats.judging import (
    MEANS_S,
    MEANS_SHARE,
    RELEVANT_DIFFERENCE,
    Limits,
    independent,
    verdict,
)
from busbw.stats.rank_tests import Shift

ROOT = Path(__file__).parents[3]
MIB = 1 << 20


def result(*rows: ResultRow, collective: str = "all_reduce", **fields: object) -> Result:
    return msgspec.structs.replace(
        Result(SweepSpec(collective=collective), rows=list(rows), complete=True), **fields
    )


def mean(seconds: float, size: int = MIB, in_place: float | None = None) -> ResultRow:
    second = None if in_place is None else Cell(in_place, 1e9, 1e9)
    return ResultRow(size, size // 4, "float", "sum", -1, Cell(seconds, 1e9, 1e9), second, 20)


def sampled(samples: list[float], size: int = MIB, dropped: int = 0) -> ResultRow:
    middle = sorted(samples[dropped:])[len(samples[dropped:]) // 2]
    return ResultRow(
        size,
        size // 4,
        "float",
        "sum",
        -1,
        Cell(middle, 1e9, 1e9, samples_s=samples, dropped=dropped, stopped="ok"),
        None,
        len(samples),
    )


def one_result(*rows: ResultRow) -> list[Named]:
    return [("file.json", result(*rows))]


def only(comparison: Comparison) -> ComparedCell:
    (cell,) = comparison.cells
    return cell


def draws(seed: int, count: int, middle: float, cv: float = 0.01) -> list[float]:
    draw = random.Random(seed)
    return [middle * draw.lognormvariate(0, cv) for _ in range(count)]


def test_slower_samples_get_a_verdict_ratio_and_interval() -> None:
    cell = only(
        compare(one_result(sampled(draws(1, 16, 1e-3))), one_result(sampled(draws(2, 16, 1.15e-3))))
    )
    assert (cell.verdict, cell.by, cell.a_count, cell.b_count) == (
        ComparisonVerdict.SLOWER,
        "samples",
        16,
        16,
    )
    assert cell.low is not None
    assert cell.high is not None
    assert cell.ratio is not None
    assert 1.05 < cell.low < 1.12 < cell.ratio < 1.18 < cell.high < 1.25, "runs differ by 2 %"
    assert cell.p is not None
    assert cell.p < 0.01


def test_a_slowdown_within_tolerance_is_slower_but_not_beyond_it() -> None:
    sides = runs(1, [1e-3] * 5), runs(2, [1.035e-3] * 5)
    assert compare(*sides).of(ComparisonVerdict.SLOWER) == compare(*sides).cells
    assert compare(*sides).beyond() == []
    assert len(compare(*sides, Limits(tolerance=0.025)).beyond()) == 20


def test_a_proven_difference_too_small_to_matter_is_the_same() -> None:
    comparison = compare(runs(1, [1e-3] * 5, 0.0005), runs(2, [1.008e-3] * 5, 0.0005))
    assert all(cell.p is not None and cell.p < 0.05 for cell in comparison.cells)
    assert comparison.of(ComparisonVerdict.SAME) == comparison.cells


@pytest.mark.parametrize("counts", [(600, 600), (4096, 4096), (3, 4096)])
def test_as_many_samples_as_a_run_takes_are_compared(counts: tuple[int, int]) -> None:
    """Their arrangements are more than a float can count."""
    cell = only(
        compare(
            one_result(sampled(draws(1, counts[0], 1e-3))),
            one_result(sampled(draws(2, counts[1], 1.2e-3))),
        )
    )
    assert (cell.a_count, cell.b_count) == counts
    assert cell.verdict is ComparisonVerdict.SLOWER


def test_noise_wider_than_the_tolerance_is_ambiguous() -> None:
    assert (
        only(
            compare(
                one_result(sampled(draws(1, 8, 1e-3, 0.3))),
                one_result(sampled(draws(2, 8, 1e-3, 0.3))),
            )
        ).verdict
        is ComparisonVerdict.AMBIGUOUS
    )


def test_samples_at_the_head_that_were_dropped_do_not_count() -> None:
    warming = sampled([5e-3] * 8 + draws(1, 16, 1e-3), dropped=8)
    cell = only(compare(one_result(warming), one_result(sampled(draws(2, 16, 1e-3)))))
    assert (cell.verdict, cell.a_count) == (ComparisonVerdict.SAME, 16)


def visited(level_s: Sequence[float], seed: int) -> ResultRow:
    """A row whose visits, of eight samples each, are at these levels."""
    rng = random.Random(seed)
    visits = [[level * rng.lognormvariate(0, 0.001) for _ in range(8)] for level in level_s]
    row = sampled([sample for visit in visits for sample in visit])
    assert row.out_of_place
    row.out_of_place.visits = [8] * len(visits)
    return row


STEADY = [1e-3 * (1 + 0.001 * (i % 3)) for i in range(9)]
NOISY = [1e-3 * (1 + 0.04 * (i % 3)) for i in range(9)]


def longer(level_s: Sequence[float], factor: float) -> list[float]:
    return [factor * level for level in level_s]


def test_runs_are_expected_to_differ_as_visits_do() -> None:
    def compared(level_s: Sequence[float], factor: float) -> Comparison:
        return compare(
            one_result(visited(level_s, 1)), one_result(visited(longer(level_s, factor), 2))
        )

    assert only(compared(STEADY, 1.1)).verdict is ComparisonVerdict.SLOWER
    assert only(compared(NOISY, 1.1)).verdict is ComparisonVerdict.AMBIGUOUS
    assert (
        compared(NOISY, 1.1)
        .notes[-1]
        .endswith("busbw run --repeats 4 on each side decides, or busbw compare --run")
    )


def sweeps(factors: Sequence[float]) -> Comparison:
    """One steady run a side, with a size for each factor; B's sizes take that many times as
    long.
    """
    rows = [
        (visited(STEADY, 2 * i), visited(longer(STEADY, factor), 2 * i + 1))
        for i, factor in enumerate(factors)
    ]
    sides = [
        [msgspec.structs.replace(row, size_bytes=8 << i) for i, row in enumerate(side)]
        for side in zip(*rows, strict=True)
    ]
    return compare(one_result(*sides[0]), one_result(*sides[1]))


def test_one_run_a_side_takes_runs_to_differ_as_the_ratios_of_neighbouring_sizes_scatter() -> None:
    step = sweeps([1.0] * 6 + [1.3] * 6)
    assert [cell.ratio for cell in step.of(ComparisonVerdict.SLOWER)] == pytest.approx(
        [1.3] * 6, rel=0.01
    )
    scattered = sweeps([1.06, 0.94, 1.07, 0.96, 1.05, 0.95, 1.3, 1.2, 1.35, 1.25, 1.4, 1.3])
    assert not scattered.of(ComparisonVerdict.SLOWER)


def test_one_run_a_side_cannot_tell_a_glitch_from_a_change_of_one_size() -> None:
    glitch = sweeps([1.0] * 6 + [1.5] + [1.0] * 6)
    assert not glitch.of(ComparisonVerdict.SLOWER)
    assert glitch.cells[6].verdict is ComparisonVerdict.AMBIGUOUS
    two_sizes = sweeps([1.0] * 6 + [1.5, 1.4] + [1.0] * 6)
    assert two_sizes.of(ComparisonVerdict.SLOWER) == two_sizes.cells[6:8]


def test_stored_runs_give_the_variation_between_runs() -> None:
    a = one_result(visited(STEADY, 1))
    b = one_result(visited(longer(STEADY, 1.05), 2))
    (key,) = (cell.key for cell in compare(a, b).cells)

    def stored(spread: float, runs: int) -> dict[int, dict[CellKey, float]]:
        rng = random.Random(5)
        return {run: {key: 1e-3 * rng.lognormvariate(0, spread)} for run in range(runs)}

    assert only(compare(a, b)).verdict is ComparisonVerdict.AMBIGUOUS, "2 % are usual between runs"
    assert only(compare(a, b, earlier=stored(0.002, 5))).verdict is ComparisonVerdict.SLOWER
    compared = compare(a, b, earlier=stored(0.05, 5))
    assert only(compared).verdict is ComparisonVerdict.AMBIGUOUS
    assert compared.notes[0].startswith("5 stored runs of this machine and sweep differ by ")
    two = compare(a, b, earlier=stored(0.002, 2))
    assert only(two).verdict is ComparisonVerdict.AMBIGUOUS, "two runs say nothing"


def test_more_simulated_cells_ask_for_more_evidence_of_each() -> None:
    quick, slow = draws(1, 6, 1e-3, 0.001), draws(2, 6, 1.2e-3, 0.001)

    def compared(sizes: Sequence[int]) -> Comparison:
        sides = [
            result(*(sampled(samples, size) for size in sizes), library=EngineLibrary("sim"))
            for samples in (quick, slow)
        ]
        return compare([("a", sides[0])], [("b", sides[1])])

    assert only(compared([MIB])).verdict is ComparisonVerdict.SLOWER
    comparison = compared([8 << i for i in range(30)])
    assert comparison.of(ComparisonVerdict.AMBIGUOUS) == comparison.cells
    assert comparison.notes == [
        "30 of 30 cells have too few independent samples to be called slower or faster at 95 % over"
        " all cells: 7 per side are needed"
    ]


@pytest.mark.parametrize(
    ("a_s", "b_s", "expected"),
    [
        (1e-3, 1.04e-3, ComparisonVerdict.SAME),
        (1e-3, 0.97e-3, ComparisonVerdict.SAME),
        (1e-3, 1.09e-3, ComparisonVerdict.AMBIGUOUS),
        (1e-3, 1.13e-3, ComparisonVerdict.SLOWER),
        (1.13e-3, 1e-3, ComparisonVerdict.FASTER),
        (
            8e-6,
            24e-6,
            ComparisonVerdict.AMBIGUOUS,
        ),  # three times, yet no more than a hiccup of the host
        (8e-6, 40e-6, ComparisonVerdict.SLOWER),
    ],
)
def test_single_means_differ_only_beyond_their_usual_variation(
    a_s: float, b_s: float, expected: ComparisonVerdict
) -> None:
    comparison = compare(one_result(mean(a_s)), one_result(mean(b_s)))
    cell = only(comparison)
    assert (cell.verdict, cell.by, cell.p) == (expected, "means", None)
    assert comparison.signs is not None


def test_recorded_pairs_stay_within_the_usual_variation() -> None:
    folder = ROOT / "benchmarks" / "all_reduce_2xh200_202611"
    pairs = 0
    other_runs = [
        f"other_runs/{name}_{i}" for name in ("earlier", "pinned", "second") for i in (1, 2, 3)
    ]
    for names in (
        [f"compat_{i}" for i in (1, 2, 3)],
        [f"run_{i}" for i in (1, 2, 3)],
        [f"beside_c/compat_{i}" for i in range(1, 6)],
        other_runs,
    ):
        runs = [dict(cells(read((folder / f"{name}.json").read_bytes(), name))) for name in names]
        for i, first in enumerate(runs):
            for second in runs[:i]:
                for key, cell in first.items():
                    low, high = sorted((cell.time_s, second[key].time_s))
                    assert high - low <= MEANS_S + MEANS_SHARE * low, (names, key)
                    pairs += 1
    assert pairs == 3224


def test_single_means_are_tested_by_signs_over_the_sweep() -> None:
    rows = [mean(1e-3 * (i + 1), 8 << i) for i in range(12)]
    slower = [mean(1.03e-3 * (i + 1), 8 << i) for i in range(12)]
    comparison = compare(one_result(*rows), one_result(*slower))
    assert len(comparison.of(ComparisonVerdict.SAME)) == 12
    assert comparison.signs is not None
    assert (comparison.signs.longer, comparison.signs.shorter, comparison.signs.p) == (
        12,
        0,
        2 / 4096,
    )
    assert (
        compare(one_result(sampled(draws(1, 9, 1.0))), one_result(sampled(draws(2, 9, 1.0)))).signs
        is None
    )


def runs(seed: int, middles: list[float], spread: float = 0.003) -> list[Named]:
    draw = random.Random(seed)
    rows = [
        [mean(middle * draw.lognormvariate(0, spread), 8 << i) for i in range(20)]
        for middle in middles
    ]
    return [(f"{seed}/{i}.json", result(*run)) for i, run in enumerate(rows)]


def test_repeated_runs_are_the_unit_where_a_side_has_several() -> None:
    equal = compare(runs(1, [1e-3] * 5), runs(2, [1e-3] * 5))
    assert {cell.by for cell in equal.cells} == {"runs"}
    assert equal.of(ComparisonVerdict.SAME) == equal.cells
    slower = compare(runs(1, [1e-3] * 5), runs(2, [1.08e-3] * 5))
    assert slower.of(ComparisonVerdict.SLOWER) == slower.cells
    assert {(cell.a_count, cell.b_count) for cell in slower.cells} == {(5, 5)}


def test_repeats_count_as_runs_except_incomplete_ones() -> None:
    def repeated(seed: int, middle: float, complete: bool) -> list[Named]:
        draw = random.Random(seed)
        rows = [
            msgspec.structs.replace(
                mean(middle * draw.lognormvariate(0, 0.003), 8 << i), repeat=repeat
            )
            for repeat in range(6)
            for i in draw.sample(range(10), 10)
        ]
        return [("file.json", result(*(rows if complete else rows[:-5]), complete=complete))]

    comparison = compare(repeated(1, 1e-3, True), repeated(2, 1.1e-3, False))
    assert comparison.of(ComparisonVerdict.SLOWER) == comparison.cells
    assert [cell.key.size_bytes for cell in comparison.cells] == [8 << i for i in range(10)]
    assert {(cell.by, cell.a_count, cell.b_count) for cell in comparison.cells} == {("runs", 6, 5)}


def test_three_runs_a_side_are_judged_by_their_spread() -> None:
    comparison = compare(runs(1, [1e-3] * 3), runs(2, [1.1e-3] * 3))
    assert comparison.of(ComparisonVerdict.SLOWER) == comparison.cells
    assert comparison.notes == [
        "3 and 3 runs are judged by their spread, as if times varied like a normal distribution;"
        " 4 per side need no such assumption"
    ]
    equal = compare(runs(1, [1e-3] * 3), runs(2, [1e-3] * 3))
    assert equal.of(ComparisonVerdict.SAME) == equal.cells
    noisy = compare(runs(1, [1e-3] * 3, 0.1), runs(2, [1.1e-3] * 3, 0.1))
    assert noisy.of(ComparisonVerdict.AMBIGUOUS) == noisy.cells
    by_order = compare(runs(1, [1e-3] * 3), runs(2, [1.1e-3] * 3), Limits(confidence=0.9))
    assert by_order.of(ComparisonVerdict.SLOWER) == by_order.cells
    assert by_order.notes == []


def test_cells_match_by_key_and_the_rest_is_unmatched() -> None:
    a = result(mean(1e-3, 8, in_place=1e-3), mean(1e-3, 16), mean(1e-3, 16))
    b = result(
        mean(1e-3, 8),
        msgspec.structs.replace(mean(1e-3, 16), dtype="half"),
        mean(1e-3, 16),
        mean(1e-3, 32),
    )
    compared = compare([("a", a)], [("b", b)]).cells
    verdicts = [
        (
            cell.key.size_bytes,
            cell.key.dtype,
            cell.key.placement,
            cell.key.cycle,
            cell.verdict.value,
        )
        for cell in compared
    ]
    assert verdicts == [
        (8, "float", "out_of_place", 0, "same"),
        (8, "float", "in_place", 0, "unmatched"),
        (16, "float", "out_of_place", 0, "same"),
        (16, "float", "out_of_place", 1, "unmatched"),
        (16, "half", "out_of_place", 0, "unmatched"),
        (32, "float", "out_of_place", 0, "unmatched"),
    ]
    assert (compared[1].a_s, compared[1].b_s) == (1e-3, None)


@pytest.mark.parametrize("time_s", [0.0, math.nan, math.inf])
def test_a_missing_time_matches_nothing(time_s: float) -> None:
    assert (
        only(compare(one_result(mean(time_s)), one_result(mean(1e-3)))).verdict
        is ComparisonVerdict.UNMATCHED
    )


def test_files_of_different_collectives_are_refused_by_name() -> None:
    with pytest.raises(
        UsageError, match=r"a\.json measures all_reduce, b\.json measures all_gather"
    ):
        compare(
            [("a.json", result(mean(1e-3)))],
            [("b.json", result(mean(1e-3), collective="all_gather"))],
        )


def test_runs_of_different_counts_are_refused_with_both() -> None:
    runs = [
        (
            f"{name}.json",
            result(
                mean(1e-3),
                collective="alltoallv",
                traffic=traffic([[0, 16], [16, 0]], source, ["h", "h"]),
            ),
        )
        for name, source in (("a", ""), ("b", "zipf:1,rows=9,seed=1"))
    ]
    with pytest.raises(
        UsageError,
        match=r"a\.json has the bytes of the default, b\.json those of zipf:1,rows=9,seed=1",
    ):
        compare(runs[:1], runs[1:])
    # written before results had traffic
    old = [("old.json", result(mean(1e-3), collective="alltoallv"))]
    assert only(compare(old, runs[1:])).verdict is not ComparisonVerdict.UNMATCHED
    assert only(compare(runs[1:], runs[1:])).verdict is not ComparisonVerdict.UNMATCHED


def test_limits_of_a_comparison_are_noted() -> None:
    wrong = result(mean(1e-3), out_of_bounds=3)
    broken = result(
        mean(1e-3), complete=False, spec=SweepSpec(collective="all_reduce", sampling=Sampling())
    )
    notes = compare([("a.json", wrong)], [("b.json", broken)]).notes
    assert notes == [
        "A: a.json has wrong data",
        "B: the sweep of b.json is incomplete",
        "timing: classic in A, precise in B",
    ]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("python", "native", ["loop: python in A, native in B; Python's adds to small sizes"]),
        ("native", "native", []),
        ("", "native", []),
    ],
)
def test_different_loops_are_noted(a: str, b: str, expected: list[str]) -> None:
    sides = [[("x.json", result(mean(1e-3), loop=loop))] for loop in (a, b)]
    assert compare(*sides).notes == expected


@pytest.mark.parametrize(
    ("ratio", "over_all", "alone", "expected"),
    [
        (1.03, (1.01, 1.05), (1.02, 1.04), ComparisonVerdict.SLOWER),
        (1.03, (0.99, 1.07), (1.02, 1.04), ComparisonVerdict.SAME),
        (1.08, (0.99, 1.17), (1.01, 1.15), ComparisonVerdict.AMBIGUOUS),
        (1 / 1.03, (1 / 1.05, 1 / 1.01), (1 / 1.04, 1 / 1.02), ComparisonVerdict.FASTER),
        (1.01, (1.002, 1.018), (1.005, 1.015), ComparisonVerdict.SAME),
        (1.01, (1.002, 1.07), (1.005, 1.06), ComparisonVerdict.SLOWER),
        (1.92, (0.87, 4.2), (1.83, 2.18), ComparisonVerdict.AMBIGUOUS),
        (1.01, (None, None), None, ComparisonVerdict.AMBIGUOUS),
        (1.01, (None, None), (0.99, 1.02), ComparisonVerdict.SAME),
        (1.01, (0.93, 1.03), (0.94, 1.02), ComparisonVerdict.AMBIGUOUS),
    ],
)
def test_the_rule(
    ratio: float,
    over_all: tuple[float | None, float | None],
    alone: tuple[float, float] | None,
    expected: ComparisonVerdict,
) -> None:
    assert verdict(Shift(0.5, ratio, *over_all, alone), Limits()) is expected
    assert RELEVANT_DIFFERENCE == 0.02


@pytest.mark.parametrize("count", [1, 3, 4, 6])
def test_the_verdict_of_a_cell_can_be_read_from_its_interval(count: int) -> None:
    """By whole runs, by the spread of few, and by the samples of one run a side."""
    verdicts = set()
    for seed, change in enumerate((1.0, 1.0, 1.03, 1.06, 1.1, 1.3)):
        if count == 1:
            comparison = sweeps([change * (1 + 0.004 * (i % 3)) for i in range(12)])
        else:
            sides = (runs(2 * seed, [1e-3] * count, 0.01), runs(99 + seed, [change * 1e-3] * count))
            comparison = compare(*sides)
        for cell in comparison.cells:
            assert cell.low is not None and cell.high is not None and cell.p is not None
            verdicts.add(cell.verdict)
            if cell.verdict is ComparisonVerdict.SAME:
                assert cell.low >= 1 / 1.05 and cell.high <= 1.05
                continue
            excludes = not cell.low <= 1 <= cell.high
            assert excludes == (cell.p <= 0.05), "the interval and p are one test"
            assert excludes == (cell.verdict is not ComparisonVerdict.AMBIGUOUS)
    assert {ComparisonVerdict.SLOWER, ComparisonVerdict.SAME} <= verdicts


def test_a_cell_that_may_be_too_slow_leaves_the_comparison_undecided() -> None:
    rows = [mean(1e-3, 8), mean(1e-3, 16)]
    for first, second, expected in (
        (1.0, 1.09, [Verdict.PASS, Verdict.UNKNOWN]),
        (1.0, 0.92, [Verdict.PASS]),
        (1.0, 1.02, [Verdict.PASS]),
        (1.4, 1.5, [Verdict.FAIL]),
    ):
        other = one_result(mean(first * 1e-3, 8), mean(second * 1e-3, 16))
        assert compare(one_result(*rows), other).verdicts() == expected
    assert compare(one_result(*rows), one_result(mean(1e-3, 32))).undecided()


def test_correlated_neighbors_count_as_fewer_samples() -> None:
    draw, state, alike = random.Random(5), 0.0, []
    for _ in range(400):
        state = 0.8 * state + 0.6 * draw.gauss(0, 1)
        alike.append(1 + state / 100)
    assert len(independent(alike)) in range(400 // 20, 400 // 9)  # 0.8^14 is 5 %
    independent_draws = draws(6, 400, 1.0)
    assert independent(independent_draws) == independent_draws
    assert independent([]) == []


@pytest.fixture(scope="session")
def rates() -> ModuleType:
    """benchmarks/compare_rates.py, which records the same figures over 1000 sweeps."""
    spec = importlib.util.spec_from_file_location(
        "compare_rates", ROOT / "benchmarks" / "compare_rates.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare_rates"] = module
    spec.loader.exec_module(module)
    return module


def test_equal_sweeps_raise_false_alarms_no_more_than_stated(rates: ModuleType) -> None:
    alarms = sum(map(rates.alarmed, rates.many_shapes(random.Random(1), 30)))
    assert alarms <= 5  # 2.9 standard deviations above 5 % of 30 sweeps


def test_one_size_slower_by_10_percent_is_found_by_three_runs_a_side(rates: ModuleType) -> None:
    pairs = rates.adaptive_pairs(random.Random(3), 4, 3, 1.1, cv=0.01, apart=0.005)
    assert all(map(rates.found, pairs))


def test_one_equal_run_a_side_raises_no_alarm_with_heavy_tails(rates: ModuleType) -> None:
    pairs = rates.adaptive_pairs(random.Random(4), 20, cv=0.01, apart=0.03, tails=3)
    assert sum(map(rates.alarmed, pairs)) <= 3


@pytest.mark.parametrize(
    ("running", "cpus", "bus", "slower"),
    [
        (14, 2, "", 0),  # twelve others on two processors
        (4, 2, "", 0),
        (3, 2, "", 1),
        (14, 0, "", 1),  # not known
        (14, 2, "0000:00:06", 1),  # kernels on GPUs do not wait for processors
    ],
)
def test_one_run_on_an_overloaded_host_decides_nothing(
    running: int, cpus: int, bus: str, slower: int
) -> None:
    def run(time_s: float) -> Result:
        moments = [time_s * (1 + 0.001 * (number * 7 % 16)) for number in range(16)]
        cell = Cell(time_s, 1e9, 1e9, samples_s=moments, visits=[1] * 16, n=16)
        devices = [RankDevice(rank, rank, "h1", rank, bus, "any") for rank in range(2)]
        return Result(
            SweepSpec(collective="all_reduce"),
            rows=[ResultRow(8, 2, "float", "sum", -1, cell, None, 20)],
            world=World(devices, 2),
            library=EngineLibrary("mpi"),
            topology=Topology([Host("h1", cpus=cpus, running=running)]),
            complete=True,
        )

    comparison = compare([("a.json", run(1e-6))], [("b.json", run(1e-2))])
    assert len(comparison.beyond()) == slower
    busy = "B: b.json: "
    assert any(
        note.startswith(busy) and "other processes wanted the 2 processors of h1" in note
        for note in comparison.notes
    ) == (not slower)
