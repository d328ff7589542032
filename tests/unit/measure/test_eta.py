"""The remaining time of a sweep is estimated from what was measured, and not before that says it."""

import pytest

from busbw.core.sizes import format_size
from busbw.measure.eta import REACH, RemainingTime

GIB = 1 << 30
DOUBLED = [8 << step for step in range(28)]  # 8 B to 1 GiB


def test_no_estimate_before_every_size_was_visited_once() -> None:
    forecast = RemainingTime([8, GIB], visits=9)
    assert forecast.left_s() is None
    for cell, size in enumerate((8, 8, GIB)):
        forecast.learn(cell, size, 0.001, 0.01, last=False)
        shown = forecast.left_s()
        assert (shown is None) == (size < GIB), shown


def test_after_the_first_round_a_visit_takes_as_long_as_the_last_of_its_cell() -> None:
    forecast = RemainingTime([1 << 10, 1 << 20], visits=9)
    for cell, (size, visit_s) in enumerate([(1 << 10, 0.01)] * 2 + [(1 << 20, 0.05)] * 2):
        forecast.learn(cell, size, 0.001, visit_s, last=False)
    assert forecast.left_s() == pytest.approx(8 * 2 * (0.01 + 0.05))
    forecast.learn(3, 1 << 20, 0.001, 0.02, last=False)
    assert forecast.left_s() == pytest.approx(8 * (2 * 0.01 + 0.05) + 7 * 0.02)


def test_another_cell_of_a_known_size_takes_its_check_and_all_visits() -> None:
    forecast = RemainingTime([1000], visits=9)
    forecast.learn(0, 1000, 0.5, 0.1, last=False)
    assert forecast.left_s() == pytest.approx(8 * 0.1 + 0.5 + 9 * 0.1)


@pytest.mark.parametrize("bytes_s", [1e12, 1e9, 1e7], ids=["fast", "middle", "slow"])
@pytest.mark.parametrize("first_s", [1e-5, 0.1, 2.0], ids=["brief", "longer", "connects"])
def test_sizes_measured_at_once_are_estimated_within_a_factor(
    bytes_s: float, first_s: float
) -> None:
    """Whatever a network's speed and the first size's extra seconds, as of setting up links."""

    def cell_s(size: int) -> float:
        return 1e-3 + 20 * size / bytes_s + (first_s if size == DOUBLED[0] else 0.0)

    forecast, shown = RemainingTime(DOUBLED), 0
    for number, size in enumerate(DOUBLED):
        for cell in range(2):
            forecast.learn((number, cell), size, 0.0, cell_s(size), last=True)
        estimate_s = forecast.left_s()
        assert (estimate_s is None) == (size * REACH < GIB), format_size(size)
        if estimate_s is not None:
            shown += 1
            assert estimate_s == pytest.approx(2 * sum(map(cell_s, DOUBLED[number + 1 :])), rel=0.1)
    assert shown == 4


def test_times_grow_no_faster_than_the_bytes() -> None:
    forecast = RemainingTime([1000, 2000, 16000])
    for cell, (size, visit_s) in enumerate([(1000, 0.001)] * 2 + [(2000, 5.0)] * 2):
        forecast.learn(cell, size, 0.0, visit_s, last=True)
    assert forecast.left_s() == pytest.approx(2 * 8 * 5.0)


def test_the_first_size_alone_is_scaled_by_bytes() -> None:
    forecast = RemainingTime([1000, 2000])
    forecast.learn(0, 1000, 0.1, 2.0, last=True)
    assert forecast.left_s() == pytest.approx((0.1 + 2.0) + 2 * (0.2 + 4.0))


def test_later_cycles_take_as_long_as_the_first() -> None:
    forecast = RemainingTime([8, GIB] * 3)
    for cell, (size, visit_s) in enumerate([(8, 0.1), (8, 0.1), (GIB, 2.0), (GIB, 2.0)]):
        forecast.learn(cell, size, 0.0, visit_s, last=True)
    assert forecast.left_s() == pytest.approx(2 * 2 * (0.1 + 2.0))


def test_a_cell_beyond_the_fewest_visits_needs_half_as_many_again() -> None:
    forecast = RemainingTime([8], visits=2)
    for made in range(1, 5):
        for cell in (0, 1):
            forecast.learn(cell, 8, 0.1, 0.5, last=False)
        assert forecast.left_s() == pytest.approx(2 * 0.5 * {1: 1, 2: 1, 3: 2, 4: 2}[made])
    for cell in (0, 1):
        forecast.learn(cell, 8, 0.1, 0.5, last=True)
    assert forecast.left_s() == 0


def test_sizes_in_random_order_are_subtracted_by_size() -> None:
    forecast = RemainingTime([1000, 4000])
    for cell in (0, 1):
        forecast.learn(cell, 4000, 0.0, 1.0, last=True)
    assert forecast.left_s() is None  # nothing smaller was measured yet
    forecast.learn(2, 1000, 0.0, 0.3, last=True)
    assert forecast.left_s() == pytest.approx(0.3)
