"""Intervals over rounds."""

import math
import random

import pytest

from busbw.stats import rounds


def test_the_interval_is_students_over_rounds() -> None:
    # t of 3 degrees of freedom at 97.5 % is 3.182; the standard deviation of these is 1.291.
    assert rounds.mean_interval([1.0, 2.0, 3.0, 4.0]) == pytest.approx(
        (2.5 - 3.182 * 1.291 / 2, 2.5 + 3.182 * 1.291 / 2), abs=1e-3
    )
    assert rounds.mean_interval([2.0, 2.0]) == (2.0, 2.0)


def test_one_round_has_no_interval() -> None:
    assert (
        rounds.mean_interval([])
        is rounds.mean_interval([1.0])
        is rounds.ratio_interval([2.0])
        is None
    )


def test_ratios_are_judged_by_their_logarithms() -> None:
    low, high = rounds.ratio_interval([0.5, 2.0, 0.5, 2.0]) or (0.0, 0.0)
    assert low == pytest.approx(1 / high)
    assert (rounds.ratio_interval([1e-300, 1e300]) or (0, math.inf))[1] < math.inf


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_interval_covers_the_true_mean_as_often_as_stated(count: int) -> None:
    chance = random.Random(count)
    covered_count = 0
    for _ in range(1000):
        bounds = rounds.mean_interval([chance.gauss(5.0, 1.0) for _ in range(count)])
        covered_count += bounds is not None and bounds.low <= 5.0 <= bounds.high
    assert 930 <= covered_count <= 968
