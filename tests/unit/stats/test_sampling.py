"""The stopping rule: coverage with its repeated looks, its guards, and what it costs."""

import math
import random
from collections.abc import Callable, Sequence

import pytest

from busbw.core.sweep import Sampling
from busbw.stats.intervals import quantile_interval
from busbw.stats.sampling import (
    MAX_SAMPLES,
    MAX_VISITS,
    Decision,
    fewest_visits,
    first_visit_samples,
    next_look,
    next_step,
    reported_interval,
    two_modes,
    warm_up,
)  # fmt: skip

Draw = Callable[[random.Random], float]
QUICK_S = 1e-5  # a sample


def lognormal(cv: float) -> Draw:
    spread = math.sqrt(math.log(1 + cv * cv))
    return lambda rng: math.exp(rng.gauss(0, spread))


def with_tail(cv: float) -> Draw:
    """One operation in twenty takes longer, by a fifth on average."""
    body = lognormal(cv)
    return lambda rng: body(rng) * (1 + (rng.expovariate(5) if rng.random() < 0.05 else 0))


def quantised(cv: float) -> Draw:
    """As a clock of coarse ticks shows it."""
    body = lognormal(cv)
    return lambda rng: round(body(rng) * 256) / 256


def sampled(
    draw: Draw, rng: random.Random, sampling: Sampling
) -> tuple[list[list[float]], Decision]:
    visits: list[list[float]] = []
    verdict = Decision(more=first_visit_samples(sampling, QUICK_S))
    while verdict.more:
        visits.append([draw(rng) for _ in range(verdict.more)])
        verdict = next_step(visits, sampling, QUICK_S * sum(map(len, visits)))
    return visits, verdict


def in_visits(samples: Sequence[float], count: int) -> list[list[float]]:
    """The samples in so many visits."""
    size = math.ceil(len(samples) / count)
    return [list(samples[start : start + size]) for start in range(0, len(samples), size)]


@pytest.mark.parametrize(
    ("draw", "trials"),
    [(lognormal(0.01), 300), (with_tail(0.02), 200), (quantised(0.02), 300)],
    ids=["1 %", "2 % and tail", "2 % in ticks"],
)
def test_intervals_cover_the_median_despite_repeated_checks(draw: Draw, trials: int) -> None:
    sampling = Sampling(precision=0.01, confidence=0.95)
    true = sorted(draw(random.Random(seed)) for seed in range(20001))[10000]
    rng, hits = random.Random(11), 0
    for _ in range(trials):
        visits, verdict = sampled(draw, rng, sampling)
        bounds = reported_interval(visits[verdict.dropped :], sampling.confidence)
        assert verdict.stopped == "ok"
        assert bounds is not None
        hits += bounds[0] <= true <= bounds[1]
    # of the trials themselves, twice their standard deviation
    slack = 2 * math.sqrt(0.95 * 0.05 / trials)
    assert hits / trials >= 0.95 - slack


def test_quiet_samples_are_few() -> None:
    rng = random.Random(1)
    counts = sorted(len(sampled(lognormal(0.003), rng, Sampling())[0]) for _ in range(50))
    assert counts[25] == fewest_visits(Sampling()) == 8
    assert fewest_visits(Sampling(confidence=0.95)) == 7


def test_a_visit_has_fewer_samples_the_longer_they_take() -> None:
    assert [first_visit_samples(Sampling(), each_s) for each_s in (0.0, 1e-5, 1e-4, 1e-3, 1.0)] == [
        32,
        32,
        20,
        2,
        1,
    ]
    assert [first_visit_samples(Sampling(tail=True), each_s) for each_s in (1e-5, 1e-3)] == [100, 2]
    assert [first_visit_samples(Sampling(fixed=number), 1.0) for number in (1, 8, 20)] == [1, 1, 3]


def test_precision_is_checked_few_times() -> None:
    look_visits = [8]
    while next_look(look_visits[-1]) > look_visits[-1]:
        look_visits.append(next_look(look_visits[-1]))
    assert look_visits == [8, 12, 18, 27, MAX_VISITS]
    assert next_step([[1.0], [2.0]] * 5, Sampling(max_time_s=1e9), 1.0) == Decision(more=1), (
        "10 visits are no look"
    )


def test_a_warm_up_is_left_out() -> None:
    rng = random.Random(2)
    cold = [[1.3 - 0.01 * i] * 4 for i in range(9)]
    visits = [*cold, *([lognormal(0.01)(rng) for _ in range(4)] for _ in range(18))]
    dropped = warm_up(visits, 0.01)
    assert dropped >= 9
    bounds = reported_interval(visits[dropped:], 0.99)
    assert bounds is not None
    assert bounds[0] < 1.0 < bounds[1] < 1.03


def test_a_slower_first_visit_is_left_out() -> None:
    rng = random.Random(3)
    later_visits = [[lognormal(0.01)(rng) for _ in range(8)] for _ in range(8)]
    assert warm_up([[1.2] * 8, *later_visits], 0.05) == 1
    assert warm_up([[1.2] * 8, *later_visits], 0.3) == 0, "within the precision"
    assert warm_up([[1.2], *([visit[0]] for visit in later_visits)], 0.05) == 0, (
        "a single sample may be slow by chance"
    )
    assert warm_up([[1 / 1.2] * 8, *later_visits], 0.05) == 0


def test_noise_is_rarely_mistaken_for_a_warm_up() -> None:
    rng = random.Random(3)
    trials = ([[lognormal(0.03)(rng) for _ in range(4)] for _ in range(24)] for _ in range(300))
    assert sum(warm_up(visits, 0.01) > 0 for visits in trials) <= 3


def test_a_drift_never_loses_more_than_half_nor_its_faster_head() -> None:
    assert 0 < warm_up([[4 - 0.1 * i] * 3 for i in range(30)], 0.01) <= 15
    assert warm_up([[1 + 0.1 * i] * 3 for i in range(30)], 0.01) == 0


def test_two_modes_are_found_and_stop_the_cell() -> None:
    rng = random.Random(4)
    samples = [(1.0 if rng.random() < 0.5 else 1.4) * lognormal(0.01)(rng) for _ in range(60)]
    modes = two_modes(samples, 0.01)
    assert modes is not None
    assert modes == (pytest.approx(1.0, rel=0.01), pytest.approx(1.4, rel=0.01))
    assert two_modes([lognormal(0.02)(rng) for _ in range(500)], 0.01) is None
    visits = in_visits(samples, 12)
    assert next_step(visits, Sampling(max_time_s=1e-9), 1.0).modes_s == modes
    assert next_step(visits, Sampling(fixed=60), 1.0).modes_s == modes
    decision = next_step(visits, Sampling(precision=0.9), 1.0)
    assert decision == Decision(stopped="ok"), "a gap is held to the precision"


def test_one_mode_is_rarely_mistaken_for_two() -> None:
    rng = random.Random(5)
    assert (
        sum(
            two_modes([with_tail(0.02)(rng) for _ in range(40)], 0.01) is not None
            for _ in range(500)
        )
        <= 5
    )


def test_the_reasons_to_stop() -> None:
    rng = random.Random(6)
    exponential = [rng.expovariate(1) for _ in range(MAX_SAMPLES)]
    assert (
        next_step(in_visits(exponential, MAX_VISITS), Sampling(max_time_s=1e9), 1.0).stopped
        == "unstable"
    )
    assert (
        next_step(in_visits(exponential[:96], 12), Sampling(max_time_s=1.0), 0.9).stopped
        == "budget"
    )
    assert next_step(in_visits(exponential[:96], 12), Sampling(max_time_s=1e9), 0.9).more == 16, (
        "twice as many, as they vary within a visit"
    )
    assert next_step(in_visits(exponential[:20], 7), Sampling(fixed=20), 1.0) == Decision(
        stopped="fixed"
    )
    assert next_step(in_visits(exponential[:12], 4), Sampling(fixed=20), 1.0) == Decision(more=2), (
        "8 in 4 visits"
    )
    assert next_step([[1.0]] * 3, Sampling(max_time_s=0.5), 3.0).stopped == "budget", (
        "not even the first look is in time"
    )


def test_all_of_the_time_is_used_until_the_cell_is_precise() -> None:
    rng = random.Random(6)
    exponential = [rng.expovariate(1) for _ in range(MAX_SAMPLES)]
    look = 41  # the first one after more visits than others have
    assert look > MAX_VISITS
    patient = Sampling(max_time_s=1e9, all_time=True)
    assert next_step(in_visits(exponential, look), patient, 1.0).more > 0
    assert next_step(in_visits(exponential, look), Sampling(all_time=True), 1.0).stopped == "budget"
    two_levels = [[1.0 + 0.4 * (rng.random() < 0.5) for _ in range(32)] for _ in range(8)]
    assert next_step(two_levels, Sampling(max_time_s=1e9), 1.0).stopped == "unstable"
    assert next_step(two_levels, patient, 1.0).more > 0, "nor are two groups"
    in_the_end = next_step(two_levels, Sampling(all_time=True), 1.0)
    assert (in_the_end.stopped, in_the_end.modes_s) == ("unstable", (1.0, 1.4))


def test_visits_that_differ_get_more_of_them_and_not_longer_ones() -> None:
    rng = random.Random(7)
    visits = [
        [level * lognormal(0.01)(rng) for _ in range(32)]
        for level in (lognormal(0.03)(rng) for _ in range(8))
    ]
    assert next_step(visits, Sampling(max_time_s=1e9), 1.0).more == 32


def test_the_interval_is_that_of_the_visits_where_it_is_wider() -> None:
    visits = [
        [1.0 + 0.1 * (number % 2) + 1e-3 * sample for sample in range(-2, 3)] for number in range(9)
    ]
    low, high = reported_interval(visits, 0.99) or (0.0, 0.0)
    assert low < 1.0 and high > 1.1, "and their medians are known no better than their samples vary"
    assert reported_interval(visits[:7], 0.99) is None, (
        "too few visits, whatever the number of samples"
    )


def test_a_tail_needs_its_own_number() -> None:
    sampling, rng = Sampling(tail=True, confidence=0.95, max_time_s=1e9), random.Random(9)
    visits, verdict = sampled(lognormal(0.001), rng, sampling)
    assert verdict.stopped == "ok"
    assert (
        quantile_interval([value for visit in visits for value in visit], 0.99, 0.95) is not None
    ), "it was asked for, so there is one"
    assert next_step([[1.0] * 20] * 7, sampling, 2e-3 * 140).more == 40, "140 samples have none"


def test_no_duration_is_known_better_than_the_clock_counts() -> None:
    visits = [[8.0 + 0.032 * (number % 5) for number in range(10)] for _ in range(8)]
    low, high = reported_interval(visits, 0.95) or (0.0, 0.0)
    assert reported_interval(visits, 0.95, 0.032) == (
        pytest.approx(low - 0.032),
        pytest.approx(high + 0.032),
    )
    sampling = Sampling(precision=0.005)
    assert next_step(visits, sampling, 0.0).stopped == "ok"
    assert next_step(visits, sampling, 0.0, 0.032).more > 0
