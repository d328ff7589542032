"""How often each rank's rows are requested: compared with draws of ids, and as properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.alltoallv import Zipf
from busbw.measure.alltoallv import HEAD, _sum, loads, unique_ids

SMALL = {"rows": 1000, "ids": 500}


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.05, 2.0])
def test_loads_and_unique_ids_are_those_of_drawn_batches(exponent: float) -> None:
    rng = np.random.default_rng(1)
    weights = np.arange(1, 1001) ** -exponent
    batches = rng.choice(1000, size=(400, 500), p=weights / weights.sum())
    plain = np.bincount(batches.ravel() // 250, minlength=4)
    assert loads(Zipf(exponent, sorted=True, **SMALL), 4) == pytest.approx(
        plain / plain.max(), abs=0.02
    )
    unique = [np.unique(batch) for batch in batches]
    unique_loads = np.bincount(np.concatenate(unique) // 250, minlength=4)
    assert loads(Zipf(exponent, sorted=True, dedup=True, **SMALL), 4) == pytest.approx(
        unique_loads / unique_loads.max(), abs=0.03
    )
    assert unique_ids(Zipf(exponent, dedup=True, **SMALL)) == pytest.approx(
        np.mean([len(ids) for ids in unique]), rel=0.01
    )


def test_the_default_is_the_same_on_every_host() -> None:
    expected = [0.628, 1.0, 0.561, 0.725, 0.523, 0.538, 0.974, 0.513]
    assert [round(load, 3) for load in loads(Zipf(1.05), 8)] == expected
    assert loads(Zipf(1.05, seed=2), 8) != loads(Zipf(1.05), 8)


def test_rows_are_sharded_as_in_torchrec() -> None:
    # 10 rows over 4 ranks are 3, 3, 3 and 1; 5 rows are 2, 2, 1 and 0.
    for in_order in (True, False):
        assert loads(Zipf(0.0, rows=10, sorted=in_order), 4) == [1.0, 1.0, 1.0, round(1 / 3, 9)]
        assert loads(Zipf(0.0, rows=5, sorted=in_order), 4) == [1.0, 1.0, 0.5, 0.0]


@given(st.integers(1, 64), st.integers(1, 10**6), st.booleans(), st.booleans())
def test_without_a_power_law_all_ranks_are_equal(
    ranks: int, block: int, dedup: bool, in_order: bool
) -> None:
    assert loads(
        Zipf(0.0, rows=ranks * block, dedup=dedup, sorted=in_order), ranks
    ) == pytest.approx([1.0] * ranks, abs=1e-9)


@given(st.integers(2, 64), st.integers(64, 10**9), st.floats(0, 1.2), st.floats(0.1, 0.5))
def test_skew_grows_with_the_exponent(ranks: int, rows: int, exponent: float, more: float) -> None:
    smaller, greater = (
        sum(loads(Zipf(value, rows=rows, sorted=True), ranks))
        for value in (exponent, exponent + more)
    )
    assert smaller > greater >= 1, "the other ranks' loads relative to that of rank 0"


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("exponent", [1.05, 2.0])
def test_dedup_lessens_the_skew_of_scattered_ids(ranks: int, exponent: float) -> None:
    for seed in range(10):
        plain, deduplicated = (
            ranks / sum(loads(Zipf(exponent, seed=seed, dedup=dedup), ranks))
            for dedup in (False, True)
        )
        assert plain > 1.2 and deduplicated < plain


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.05, 2.0])
def test_sums_by_buckets_are_within_1e_4(exponent: float) -> None:
    high = 40 * HEAD
    exact = math.fsum(k**-exponent for k in range(HEAD + 1, high + 1))
    assert _sum(lambda k: k**-exponent, HEAD, high) == pytest.approx(exact, rel=1e-4)
