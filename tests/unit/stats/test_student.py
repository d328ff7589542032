"""Student's t against published quantiles, and against itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.stats.rounds import t_quantile, t_tail

# Abramowitz and Stegun, table 26.10: one-sided 5 %, 0.5 %, 0.05 %.
TABLE = {
    1: (6.314, 63.657, 636.619),
    2: (2.920, 9.925, 31.598),
    5: (2.015, 4.032, 6.869),
    10: (1.812, 3.169, 4.587),
}


@pytest.mark.parametrize("freedom", TABLE)
def test_quantiles_of_the_table(freedom: int) -> None:
    quantiles = [t_quantile(share, freedom) for share in (0.05, 0.005, 0.0005)]
    assert quantiles == pytest.approx(list(TABLE[freedom]), rel=3e-4)


@given(st.floats(1e-7, 0.5), st.integers(1, 60))
def test_the_tail_of_a_quantile_is_its_share(share: float, freedom: int) -> None:
    assert t_tail(t_quantile(share, freedom), freedom) == pytest.approx(share, rel=1e-5)


@given(st.floats(-50, 50), st.integers(1, 60))
def test_the_tails_are_symmetric(t: float, freedom: int) -> None:
    assert t_tail(t, freedom) + t_tail(-t, freedom) == pytest.approx(1)
