"""The stopping rule: coverage with its repeated looks, its guards, and what it costs."""

import math
import random
from collections.abc import Callable

import pytest

from busbw.core.sweep import Sampling
from busbw.stats.intervals import quantile_interval
from busbw.stats.sampling import MAX_SAMPLES, Decision, first, next_look, next_step, reported_interval, two_modes, warm_up

Draw = Callable[[random.Random], float]


def lognormal(cv: float) -> Draw:
    spread = math.sqrt(math.log(1 + cv * cv))
    return lambda dice: math.exp(dice.gauss(0, spread))


def with_tail(cv: float) -> Draw:
    """One operation in twenty takes longer, by a fifth on average."""
    body = lognormal(cv)
    return lambda dice: body(dice) * (1 + (dice.expovariate(5) if dice.random() < 0.05 else 0))


def quantised(cv: float) -> Draw:
    """As a clock of coarse ticks shows it."""
    body = lognormal(cv)
    return lambda dice: round(body(dice) * 256) / 256


def sampled(draw: Draw, dice: random.Random, sampling: Sampling) -> tuple[list[float], Decision]:
    samples: list[float] = []
    verdict = Decision(more=first(sampling))
    while verdict.more:
        samples += [draw(dice) for _ in range(verdict.more)]
        verdict = next_step(samples, sampling, 0.0)
    return samples, verdict


@pytest.mark.parametrize(
    ("draw", "trials"),
    [(lognormal(0.002), 1500), (lognormal(0.005), 1500), (lognormal(0.01), 1500), (lognormal(0.02), 1000), (lognormal(0.05), 300),
     (with_tail(0.005), 1500), (with_tail(0.02), 700), (quantised(0.01), 1500)],
    ids=["0.2 %", "0.5 %", "1 %", "2 %", "5 %", "0.5 % and tail", "2 % and tail", "1 % in ticks"],
)  # fmt: skip
def test_intervals_cover_the_median_despite_repeated_looks(draw: Draw, trials: int) -> None:
    sampling = Sampling(precision=0.01, confidence=0.95)
    true = sorted(draw(random.Random(seed)) for seed in range(20001))[10000]
    dice, hits = random.Random(11), 0
    for _ in range(trials):
        samples, verdict = sampled(draw, dice, sampling)
        found = reported_interval(samples[verdict.dropped :], sampling.confidence)
        assert verdict.stopped == "ok"
        assert found is not None
        hits += found[0] <= true <= found[1]
    slack = 2 * math.sqrt(0.95 * 0.05 / trials)  # of the trials themselves, twice their standard deviation
    assert 0.93 - slack <= hits / trials <= 0.98 + slack


def test_quiet_samples_are_few() -> None:
    dice = random.Random(1)
    sizes = sorted(len(sampled(lognormal(0.003), dice, Sampling())[0]) for _ in range(200))
    assert sizes[100] == first(Sampling()) == 8
    assert first(Sampling(confidence=0.95)) == 6


def test_looks_are_few() -> None:
    looks = [8]
    while looks[-1] < MAX_SAMPLES:
        looks.append(next_look(looks[-1]))
    assert looks[:5] == [8, 12, 18, 27, 41]
    assert len(looks) < 18


def test_a_warm_up_is_left_out() -> None:
    dice = random.Random(2)
    cold = [1.3 - 0.01 * i for i in range(30)]
    samples = [*cold, *(lognormal(0.01)(dice) for _ in range(60))]
    dropped = warm_up(samples, 0.01)
    assert dropped >= 30
    found = reported_interval(samples[dropped:], 0.99)
    assert found is not None
    assert found[0] < 1.0 < found[1] < 1.03


def test_noise_is_rarely_taken_for_a_warm_up() -> None:
    dice = random.Random(3)
    assert sum(warm_up([lognormal(0.03)(dice) for _ in range(60)], 0.01) > 0 for _ in range(1000)) <= 5


def test_a_drift_never_loses_more_than_half_nor_its_faster_head() -> None:
    assert 0 < warm_up([4 - 0.01 * i for i in range(300)], 0.01) <= 150
    assert warm_up([1 + 0.01 * i for i in range(300)], 0.01) == 0


def test_two_modes_are_found_and_stop_the_cell() -> None:
    dice = random.Random(4)
    samples = [(1.0 if dice.random() < 0.5 else 1.4) * lognormal(0.01)(dice) for _ in range(60)]
    modes = two_modes(samples, 0.01)
    assert modes is not None
    assert modes == (pytest.approx(1.0, rel=0.01), pytest.approx(1.4, rel=0.01))
    assert two_modes([lognormal(0.02)(dice) for _ in range(500)], 0.01) is None
    assert next_step(samples, Sampling(max_time_s=1e-9), 1.0).modes_s == modes
    assert next_step(samples, Sampling(fixed=60), 1.0).modes_s == modes
    assert next_step(samples, Sampling(precision=0.9, confidence=0.5), 1.0) == Decision(stopped="ok"), "a gap is held to the precision"


def test_one_mode_is_hardly_ever_taken_for_two() -> None:
    dice = random.Random(5)
    assert sum(two_modes([with_tail(0.02)(dice) for _ in range(40)], 0.01) is not None for _ in range(500)) <= 5


def test_the_reasons_to_stop() -> None:
    dice = random.Random(6)
    wild = [dice.expovariate(1) for _ in range(MAX_SAMPLES)]
    assert next_step(wild, Sampling(max_time_s=1e9), 1.0).stopped == "unstable"
    assert next_step(wild[:100], Sampling(max_time_s=1.0), 0.9).stopped == "budget"
    assert next_step(wild[:100], Sampling(max_time_s=1e9), 0.9).more == 50
    assert next_step(wild[:20], Sampling(fixed=20), 1.0) == Decision(stopped="fixed")
    assert next_step(wild[:12], Sampling(fixed=20), 1.0) == Decision(more=8)


def test_a_tail_needs_its_own_number() -> None:
    sampling, dice = Sampling(tail=True, confidence=0.95, max_time_s=1e9), random.Random(9)
    samples, verdict = sampled(lognormal(0.001), dice, sampling)
    assert verdict.stopped == "ok"
    assert len(samples) > 300
    assert quantile_interval(samples, 0.99, 0.95) is not None, "it was asked for, so there is one"
    assert next_step([1.0] * 200, sampling, 0.1).more == 100


def test_no_duration_is_known_better_than_the_clock_counts() -> None:
    samples = [8.0 + 0.032 * (number % 5) for number in range(50)]
    low, high = reported_interval(samples, 0.95) or (0.0, 0.0)
    assert reported_interval(samples, 0.95, 0.032) == (pytest.approx(low - 0.032), pytest.approx(high + 0.032))
    sampling = Sampling(precision=0.005, confidence=0.95)
    assert next_step(samples, sampling, 0.0).stopped == "ok"
    assert next_step(samples, sampling, 0.0, 0.032).more > 0
