"""Whole runs against whole runs: exact by enumeration, and the rate holds over all rows
together.
"""

import random

import pytest

from busbw.stats import rank_tests
from busbw.stats.rank_tests import fewest_chance, sweep_test


def noise(draw: random.Random, rows: int, runs: int, shared: float = 0.0) -> list[list[float]]:
    """Logarithms of times: each row has its own spread, and the rows of one run share a part."""
    common = [draw.gauss(0, shared) for _ in range(runs)]
    return [
        [common[i] + draw.gauss(0, 0.002 * (1 + r % 5)) for i in range(runs)] for r in range(rows)
    ]


def test_one_slower_row_of_4_and_4_runs_has_the_smallest_p() -> None:
    rows = noise(random.Random(1), 40, 8)
    rows[7] = [value + (0.05 if i >= 4 else 0) for i, value in enumerate(rows[7])]
    ps = sweep_test(rows, 4, two_sided=True)
    assert ps[7] == pytest.approx(2 / 70) == fewest_chance(4, 4, two_sided=True)
    assert min(p for r, p in enumerate(ps) if r != 7) > 0.2


def test_a_slower_new_run_stands_out_and_a_faster_one_does_not() -> None:
    rows = noise(random.Random(2), 30, 20)
    slower, faster = (
        [[*row[:-1], row[-1] + by] if r == 3 else row for r, row in enumerate(rows)]
        for by in (0.1, -0.1)
    )
    assert (
        sweep_test(slower, 19, two_sided=False)[3]
        == pytest.approx(1 / 20)
        == fewest_chance(19, 1, two_sided=False)
    )
    assert min(sweep_test(faster, 19, two_sided=False)) > 0.05


def test_equal_runs_of_any_spread_give_no_difference() -> None:
    assert sweep_test([[1.0] * 8] * 5, 4, two_sided=True) == [1.0] * 5
    rows = [[1.0] * 8, [1.0] * 4 + [1.1] * 4]
    constant, shifted = sweep_test(rows, 4, two_sided=True)
    assert constant == 1.0
    assert shifted == pytest.approx(2 / 70)


@pytest.mark.parametrize(("runs", "first"), [(2, 1), (5, 0), (5, 5)])
def test_without_two_sides_and_a_spread_there_is_no_result(runs: int, first: int) -> None:
    assert sweep_test([[float(i) for i in range(runs)]] * 3, first, two_sided=True) == [1.0] * 3
    assert sweep_test([], first, two_sided=True) == []


def test_many_splits_are_sampled_and_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = noise(random.Random(3), 10, 12)
    rows[2] = [value + (0.02 if i >= 6 else 0) for i, value in enumerate(rows[2])]
    exact_p = sweep_test(rows, 6, two_sided=True)
    monkeypatch.setattr(rank_tests, "MAX_SPLITS", 500)
    sampled = sweep_test(rows, 6, two_sided=True)
    assert sampled == sweep_test(rows, 6, two_sided=True)
    assert sampled[2] < 0.02
    assert [abs(p - q) < 0.1 for p, q in zip(exact_p, sampled, strict=True)] == [True] * 10


@pytest.mark.parametrize(
    ("first", "second", "two_sided", "rate"), [(4, 4, True, 0.05), (19, 1, False, 0.05)]
)
def test_the_false_alarm_rate_holds_for_correlated_rows(
    first: int, second: int, two_sided: bool, rate: float
) -> None:
    draw, trials = random.Random(4), 300
    alarms = 0
    for _ in range(trials):
        ps = sweep_test(noise(draw, 15, first + second, shared=0.01), first, two_sided=two_sided)
        alarms += min(ps) <= rate
    assert alarms / trials <= rate + 0.035  # 2.8 standard deviations of 300 trials
