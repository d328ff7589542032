"""Intervals of a median: exact coverage, shapes, correlation, too few samples."""

import math
import random
from collections.abc import Callable
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.stats.intervals import (
    correlation,
    coverage,
    depth,
    interval,
    least_samples,
    quantile_interval,
)

SHAPES: dict[str, tuple[Callable[[random.Random], float], float]] = {
    "lognormal 2 %": (lambda rng: math.exp(rng.gauss(0, 0.02)), 1.0),
    "exponential": (lambda rng: rng.expovariate(1), math.log(2)),
    "uniform": (lambda rng: rng.random(), 0.5),
    "heavy tails": (lambda rng: rng.gauss(0, 1) / math.sqrt(rng.expovariate(1)), 0.0),
}


def test_the_fewest_samples_are_those_of_the_binomial() -> None:
    assert [least_samples(confidence) for confidence in (0.9, 0.95, 0.99)] == [5, 6, 8]
    assert coverage(6, 1) == pytest.approx(1 - 2 / 64)
    assert coverage(10, 2) == pytest.approx(1 - 2 * 11 / 1024)
    assert coverage(5, 3) == 0.0


def test_exact_and_approximate_coverage_meet() -> None:
    exact = 1 - 2 * sum(math.comb(401, i) for i in range(180)) / 2**401
    assert coverage(401, 180) == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize("n", [6, 7, 8, 10, 16, 33, 200])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_covers_as_often_as_stated(shape: str, n: int) -> None:
    draw, true = SHAPES[shape]
    rng = random.Random(n)
    intervals = [interval([draw(rng) for _ in range(n)], 0.95) for _ in range(1000)]
    # a few samples may look correlated by chance: then nothing is stated
    stated = [bounds for bounds in intervals if bounds is not None]
    assert len(stated) >= 950
    assert 0.93 <= sum(low <= true <= high for low, high in stated) / len(stated) <= 0.97


def test_correlated_samples_make_it_wider() -> None:
    rng, value, alike = random.Random(3), 0.0, []
    for _ in range(400):
        value = 0.8 * value + rng.gauss(0, 1)
        alike.append(value)
    shuffled = rng.sample(alike, len(alike))
    wide_interval, narrow = interval(alike, 0.95), interval(shuffled, 0.95)
    assert wide_interval is not None
    assert narrow is not None
    assert wide_interval[1] - wide_interval[0] > 2 * (narrow[1] - narrow[0])


def test_an_autoregression_is_covered() -> None:
    rng, hits = random.Random(5), 0
    for _ in range(400):
        value, series = rng.gauss(0, 1 / math.sqrt(1 - 0.36)), []
        for _ in range(150):
            value = 0.6 * value + rng.gauss(0, 1)
            series.append(value)
        bounds = interval(series, 0.95)
        assert bounds is not None
        hits += bounds[0] <= 0 <= bounds[1]
    assert 0.90 <= hits / 400 <= 0.99


def test_correlation_of_known_series() -> None:
    assert correlation([1.0, 2.0] * 50) < -0.9
    assert correlation([float(i) for i in range(100)]) > 0.9
    assert correlation([1.0] * 50) == 0.0
    assert correlation([1.0, 5.0, 2.0]) == 0.0


@given(
    st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=300),
    st.sampled_from([0.9, 0.95, 0.99, 0.999]),
)
def test_it_lies_around_the_median_within_the_samples(
    samples: list[float], confidence: float
) -> None:
    bounds = interval(samples, confidence)
    if bounds is None:
        assert depth(len(samples), confidence) is None or correlation(samples) > 0.2
        return
    low, high = bounds
    assert min(samples) <= low <= median(samples) * (1 + 1e-12)
    assert median(samples) * (1 - 1e-12) <= high <= max(samples)


def test_the_interval_of_a_tail_covers_it() -> None:
    rng, hits, true = random.Random(7), 0, -math.log(0.01)
    for _ in range(400):
        bounds = quantile_interval([rng.expovariate(1) for _ in range(900)], 0.99, 0.95)
        assert bounds is not None
        hits += bounds[0] <= true <= bounds[1]
    assert 0.92 <= hits / 400 <= 0.99
    assert quantile_interval([1.0] * 100, 0.99, 0.95) is None
