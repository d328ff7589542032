"""The remaining time of a sweep is estimated from the last visit, in proportion to bytes."""

import pytest

from busbw.measure.eta import RemainingTime


def test_no_forecast_before_the_first_cell() -> None:
    assert RemainingTime([8, 16], 9).left_s() is None


def test_a_visit_takes_as_long_at_any_small_size() -> None:
    forecast = RemainingTime([1 << 10, 1 << 20], visits=9)
    forecast.learn(0, 1 << 10, 0.001, 0.01, 1e-6, last=False)
    begun_s, in_place_s = 8 * 0.01, 0.001 + 9 * 0.01
    assert forecast.left_s() == pytest.approx(
        begun_s + in_place_s + 2 * (1.024 + 9 * 0.01), rel=0.01
    )


def test_large_operations_take_longer_than_a_visit() -> None:
    forecast = RemainingTime([1 << 30, 4 << 30], visits=9)
    forecast.learn(0, 1 << 30, 0.0, 1.0, 1.0, last=False)
    assert forecast.left_s() == pytest.approx(8.0 + 9.0 + 2 * 9 * 4.0)


def test_classic_timing_takes_a_fixed_number_of_operations() -> None:
    forecast = RemainingTime([1000, 2000], operations=20)
    forecast.learn(0, 1000, 0.1, 2.0, 0.1, last=True)
    assert forecast.left_s() == pytest.approx((0.1 + 2.0) + 2 * (0.2 + 4.0))


def test_a_cell_beyond_the_fewest_visits_has_one_more() -> None:
    forecast = RemainingTime([8], visits=2)
    for cell in (0, 1):
        for number in range(3):
            forecast.learn(cell, 8, 0.1, 0.5, 1e-6, last=False)
            assert forecast.left_s() >= 0.5, number
    assert forecast.left_s() == pytest.approx(2 * 0.5)
    for cell in (0, 1):
        forecast.learn(cell, 8, 0.1, 0.5, 1e-6, last=True)
    assert forecast.left_s() == 0


def test_sizes_in_random_order_are_subtracted_by_size() -> None:
    forecast = RemainingTime([1000, 4000], operations=10)
    for cell in (0, 1):
        forecast.learn(cell, 4000, 0.0, 1.0, 0.1, last=True)
    assert forecast.left_s() == pytest.approx(2 * 1.0)
