"""The rank tests agree with enumeration, and their intervals cover as often as stated."""

import math
import random
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from busbw.stats.rank_tests import EXACT_STEPS, fewest, holm, level, shift, sign_test, tail


def enumerated(m: int, n: int, u: int) -> float:
    """P(U <= u) by trying every order."""
    orders = list(combinations(range(m + n), m))
    return sum(sum(places) - m * (m - 1) // 2 <= u for places in orders) / len(orders)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 4), (4, 3), (5, 5), (2, 9), (6, 6)])
def test_the_distribution_of_u_is_that_of_all_orders(m: int, n: int) -> None:
    for u in range(-1, m * n + 1):
        assert tail(m, n, u) == pytest.approx(enumerated(m, n, u), abs=1e-12)


def test_an_approximated_tail_is_not_below_the_exact_one() -> None:
    m, n = 36, 38
    assert m * m * n <= EXACT_STEPS < 37 * 37 * n
    spread = math.sqrt(m * n * (m + n + 1) / 12)
    for z in (-2.0, -3.0, -4.0):
        u = round(m * n / 2 + z * spread)
        normal = math.erfc(-(u + 0.5 - m * n / 2) / spread / math.sqrt(2)) / 2
        assert tail(m, n, u) <= normal < 3 * tail(m, n, u)


def test_complete_separation_of_8_and_8() -> None:
    tested = shift([1.00 + i / 1000 for i in range(8)], [1.03 + i / 1000 for i in range(8)], 0.95)
    assert tested.p == pytest.approx(2 / math.comb(16, 8))
    assert tested.ratio == pytest.approx(1.03, rel=2e-3)
    assert tested.low is not None
    assert tested.high is not None
    assert 1.02 < tested.low < tested.ratio < tested.high < 1.04


def test_ratio_and_interval_are_order_statistics_of_the_ratios() -> None:
    a, b = [1.0, 2.0, 4.0, 8.0], [3.0, 5.0, 7.0, 11.0]
    ratios = sorted(y / x for x in a for y in b)
    tested = shift(a, b, 0.95)  # P(U <= 0) = 1/70 is below 2.5 %, P(U <= 1) = 2/70 is not
    assert tested.ratio == pytest.approx(math.sqrt(ratios[7] * ratios[8]))
    assert (tested.low, tested.high) == (pytest.approx(ratios[0]), pytest.approx(ratios[-1]))
    narrower = shift(a, b, 0.9)  # P(U <= 1) = 2/70 is below 5 %, P(U <= 2) = 4/70 is not
    assert (narrower.low, narrower.high) == (pytest.approx(ratios[1]), pytest.approx(ratios[-2]))


def test_three_and_three_have_no_interval_of_95_percent() -> None:
    tested = shift([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], 0.95)
    assert (tested.low, tested.high) == (None, None)
    assert tested.p == pytest.approx(2 / 20)


def test_ties_from_a_coarse_clock_prove_no_difference() -> None:
    assert shift([2.0] * 20, [2.0] * 3000, 0.95).p == 1.0
    mostly = shift([1.0] * 9 + [2.0], [1.0] * 9 + [3.0], 0.95)
    assert mostly.p == 1.0
    assert mostly.ratio == pytest.approx(1.0)


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12),
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12),
    st.sampled_from([0.8, 0.95, 0.99]),
)
@example([1.0, 3.0, 3.0, 3.0], [2.0, 4.0, 4.0, 4.0], 0.8)  # p is the error rate itself
def test_the_test_agrees_with_the_interval_and_is_symmetric(
    a: list[float], b: list[float], confidence: float
) -> None:
    forward, backward = shift(a, b, confidence), shift(b, a, confidence)
    assert forward.p == pytest.approx(backward.p)
    assert forward.ratio == pytest.approx(1 / backward.ratio, rel=1e-5)
    if forward.low is not None and forward.high is not None:
        assert forward.low <= forward.ratio * (1 + 1e-6)
        assert forward.ratio <= forward.high * (1 + 1e-6)
        # not at its very edge
        if not (
            forward.low - 1e-5 < 1 < forward.low + 1e-5
            or forward.high - 1e-5 < 1 < forward.high + 1e-5
        ):
            assert (forward.p <= level(confidence)) == (forward.low > 1 or forward.high < 1)


@pytest.mark.parametrize(("m", "n"), [(8, 8), (16, 9), (6, 200)])
def test_intervals_cover_the_true_ratio_as_often_as_stated(m: int, n: int) -> None:
    draw = random.Random(m * n)
    covered_count, trials = 0, 400
    for _ in range(trials):
        tested = shift(
            [draw.lognormvariate(0, 0.02) for _ in range(m)],
            [1.1 * draw.lognormvariate(0, 0.02) for _ in range(n)],
            0.95,
        )
        assert tested.low is not None
        assert tested.high is not None
        covered_count += tested.low <= 1.1 <= tested.high
    assert 0.925 <= covered_count / trials <= 0.99


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_signs_by_hand() -> None:
    assert sign_test(5, 0) == 2 / 32
    assert sign_test(0, 0) == sign_test(7, 7) == 1.0
    assert sign_test(1, 9) == pytest.approx(2 * 11 / 1024)


def test_the_fewest_samples_for_a_sweep() -> None:
    assert fewest(60, 0.05) == 7
    assert fewest(1, 0.05) == 4
    # 2 of 20 is 10 %, and 1 - 0.9 in floating point is a little less
    assert fewest(1, level(0.9)) == 3
