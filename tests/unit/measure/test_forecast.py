"""The remaining time of a sweep is estimated from the last cell, in proportion to bytes."""

import pytest

from busbw.core.sweep import Sampling
from busbw.measure.forecast import Forecast


def test_there_is_no_forecast_before_the_first_cell() -> None:
    assert Forecast([8, 16], Sampling(), 8).left_s() is None


def test_small_sizes_take_the_same_time_to_sample() -> None:
    forecast = Forecast([1 << 10, 1 << 20], Sampling(max_time_s=0.5), 8)
    forecast.learn(1 << 10, 0.001, 0.5, 1e-6)
    assert forecast.left_s() == pytest.approx(0.001 + 0.5 + 2 * (1.024 + 0.5), rel=0.01)


def test_large_operations_take_longer_than_the_time_of_a_cell() -> None:
    forecast = Forecast([1 << 30, 4 << 30], Sampling(max_time_s=0.5), 8)
    forecast.learn(1 << 30, 0.0, 8.0, 1.0)
    assert forecast.left_s() == pytest.approx(8.0 + 2 * 32.0)


def test_classic_timing_takes_a_fixed_number_of_operations() -> None:
    forecast = Forecast([1000, 2000], None, 20)
    forecast.learn(1000, 0.1, 2.0, 0.1)
    assert forecast.left_s() == pytest.approx((0.1 + 2.0) + 2 * (0.2 + 4.0))


def test_the_forecast_is_zero_at_the_end() -> None:
    forecast = Forecast([8], Sampling(), 8)
    for _ in range(2):
        forecast.learn(8, 0.1, 0.5, 1e-6)
    assert forecast.left_s() == 0


def test_sizes_in_random_order_are_taken_off_by_size() -> None:
    forecast = Forecast([1000, 4000], None, 10)
    for _ in range(2):
        forecast.learn(4000, 0.0, 1.0, 0.1)
    assert forecast.left_s() == pytest.approx(2 * 0.25)
