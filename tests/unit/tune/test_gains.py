"""Which candidates stay in the search of a tuning, and when a gain counts."""

import random

from busbw.core.tuning import TuningChoice
from busbw.stats.judging import Limits
from busbw.tune.types import adjust_p_values, compute_gain, fastest, is_faster, plainest

RING, FEW, MANY = (
    TuningChoice("Ring", "LL"),
    TuningChoice("Ring", "LL", 2),
    TuningChoice("Ring", "LL", 8),
)


def test_of_equally_fast_candidates_the_plainest_wins() -> None:
    assert plainest({None: [1.005], RING: [1.0]}) is None
    assert plainest({None: [1.1], MANY: [1.0], FEW: [1.009]}) == FEW
    assert plainest({None: [1.1], MANY: [1.0], FEW: [1.009], RING: [1.005]}) == RING
    assert fastest({None: [3.0, 1.0, 2.0], RING: [1.0], FEW: [4.0]}, 2) == [RING, None]


def test_the_best_of_many_equal_candidates_gains_nothing_in_fresh_samples() -> None:
    draw = random.Random(1)

    def samples(count: int) -> list[float]:
        return [draw.lognormvariate(0, 0.2) for _ in range(count)]

    gains, inflated = [], 0
    for _ in range(80):
        searched = {TuningChoice("Ring", "LL", channels): samples(8) for channels in range(1, 25)}
        baseline = samples(8)
        (best,) = fastest(searched, 1)
        inflated += is_faster(compute_gain(baseline, searched[best], 0.95), Limits())
        gains.append(compute_gain(samples(64), samples(64), 0.95))
    assert inflated > 8, "the samples of the search would show gains that do not exist"
    assert sum(is_faster(gain, Limits()) for gain in gains) <= 80 * 0.05


def test_p_values_count_sizes_that_are_not_measured_yet() -> None:
    assert adjust_p_values([0.01, 0.2], 10) == [0.1, 1.0]
    assert adjust_p_values([0.01], 1) == [0.01]


def test_a_gain_is_the_ratio_of_the_times_with_its_interval() -> None:
    draw = random.Random(1)
    baseline = [1 + draw.random() / 50 for _ in range(40)]
    gain = compute_gain(baseline, [0.8 * time_s for time_s in baseline], 0.95)
    assert gain.low is not None and gain.high is not None
    assert gain.low < gain.ratio < gain.high < 0.82
    assert is_faster(gain, Limits())
    assert not is_faster(compute_gain([1.0] * 40, [0.99] * 40, 0.95), Limits()), (
        "1 % is too little to matter"
    )
