"""The whole sampling loop on times that change meanwhile: a figure called precise is that of most samples, or it is not called so."""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from statistics import median

import pytest

from busbw.core.sweep import Sampling
from busbw.stats.sampling import MAX_DROPPED, Decision, first, next_step, reported_interval

Times = Iterator[tuple[float, float]]  # a sample, and the true median at that moment
Regime = Callable[[random.Random], Times]
FAST_S, SLOW_S = 0.9e-6, 328e-6
TRIALS = 200
SAMPLINGS = {"1 % at 99 %": Sampling(max_time_s=3000), "5 % at 95 %": Sampling(precision=0.05, confidence=0.95, max_time_s=3000)}


def noise(dice: random.Random, cv: float) -> float:
    return math.exp(dice.gauss(0, cv))


def levels(dice: random.Random, *parts: tuple[int, float], cv: float = 0.0) -> Times:
    """So many samples at each level, then level 1 for good."""
    cv = cv or dice.choice((0.005, 0.02, 0.05))
    for count, level in parts:
        for _ in range(count):
            yield level * noise(dice, cv), level
    while True:
        yield noise(dice, cv), 1.0


def stationary(dice: random.Random) -> Times:
    return levels(dice)


def slow_head(dice: random.Random) -> Times:
    return levels(dice, (dice.randint(2, 60), dice.choice((1.1, 1.5, 30.0))))


def fast_head(dice: random.Random) -> Times:
    return levels(dice, (dice.randint(2, 60), 1 / dice.choice((1.1, 1.5, 30.0))))


def late_step(dice: random.Random) -> Times:
    return levels(dice, (dice.randint(60, 600), dice.choice((0.03, 0.7, 1.3, 30.0))), cv=0.05)


def alternating_blocks(dice: random.Random) -> Times:
    length, other = dice.randint(1, 40), dice.choice((1.2, 3.0, 300.0))
    return levels(dice, *[(length, 1.0), (length, other)] * 3000, cv=0.02)


def alternating_at_random(dice: random.Random) -> Times:
    share, other = dice.uniform(0.25, 0.75), dice.choice((1.2, 3.0, 300.0))
    return levels(dice, *((1, other if dice.random() < share else 1.0) for _ in range(6000)), cv=0.02)


def rare_spikes(dice: random.Random) -> Times:
    return ((time * (dice.uniform(2, 100) if dice.random() < 0.03 else 1.0), level) for time, level in levels(dice))


def slow_drift(dice: random.Random) -> Times:
    by, cv = dice.choice((-0.002, -0.0005, 0.0005, 0.002)), dice.choice((0.005, 0.02))
    for number in itertools.count():
        level = math.exp(by * number)
        yield level * noise(dice, cv), level


def autocorrelated(dice: random.Random, keep: float) -> Times:
    state, cv = dice.gauss(0, 1), dice.choice((0.01, 0.05))
    while True:
        yield math.exp(cv * state), 1.0
        state = keep * state + math.sqrt(1 - keep * keep) * dice.gauss(0, 1)


def loop(times: Times, sampling: Sampling) -> tuple[list[float], list[float], Decision]:
    """The loop of measure.precise, where time passes with the samples; the samples, the true medians, and the last verdict."""
    taken: list[tuple[float, float]] = []
    verdict = Decision(more=first(sampling))
    while verdict.more:
        taken += itertools.islice(times, verdict.more)
        samples = [time for time, _ in taken]
        verdict = next_step(samples, sampling, sum(samples))
    return samples, [level for _, level in taken], verdict


def wrong(samples: list[float], true: list[float], verdict: Decision, sampling: Sampling) -> bool:
    """Whether the cell is called precise and its interval misses the true median of the samples that count."""
    kept = samples[verdict.dropped :]
    low, high = reported_interval(kept, sampling.confidence) or (0.0, math.inf)
    return verdict.stopped == "ok" and not low <= median(true[verdict.dropped :]) <= high


def check_bulk(samples: list[float], verdict: Decision) -> None:
    """A precise figure lies among most samples, and only slower ones were left out."""
    dropped, kept = samples[: verdict.dropped], samples[verdict.dropped :]
    figure = median(kept)
    assert 0.1 <= sum(sample <= figure for sample in samples) / len(samples) <= 0.9
    assert sum(abs(sample / figure - 1) < 0.15 for sample in kept) / len(kept) > 0.75
    assert not dropped or median(dropped) > figure
    assert len(dropped) <= MAX_DROPPED * len(samples)


# Share of cells that may be called precise and miss, beyond 1 - confidence. 0.025: twice the standard deviation of 200 trials. 0.06:
# besides, up to a fifth of the samples may be of another level, which moves the median within the bulk by up to an eighth of its samples.
# 0.12: correlation of 0.3 cannot be seen in the six samples after which a cell may stop.
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(
    ("regime", "slack"),
    [(stationary, 0.025), (slow_head, 0.06), (fast_head, 0.06), (late_step, 0.06), (alternating_blocks, 0.06),
     (alternating_at_random, 0.06), (rare_spikes, 0.025), (slow_drift, 0.025), (lambda dice: autocorrelated(dice, 0.3), 0.12)],
    ids=["stationary", "slow head", "fast head", "late step", "blocks", "at random", "spikes", "drift", "correlated 0.3"],
)  # fmt: skip
def test_a_precise_figure_is_that_of_most_samples(regime: Regime, slack: float, sampling: Sampling) -> None:
    misses = 0
    for seed in range(TRIALS):
        samples, true, verdict = loop(regime(random.Random(seed)), sampling)
        misses += wrong(samples, true, verdict, sampling)
        if verdict.stopped == "ok":
            check_bulk(samples, verdict)
    assert misses / TRIALS <= 1 - sampling.confidence + slack


@pytest.mark.parametrize("keep", [0.5, 0.9, 0.98])
def test_strong_correlation_leaves_the_figure_in_the_bulk(keep: float) -> None:
    """Changes slower than the sampling of a cell cannot be seen in it: the interval is that of the moments sampled."""
    for seed in range(TRIALS):
        samples, _, verdict = loop(autocorrelated(random.Random(seed), keep), SAMPLINGS["1 % at 99 %"])
        if verdict.stopped == "ok":
            check_bulk(samples, verdict)


@pytest.mark.parametrize("fixed", [0, 710])
@pytest.mark.parametrize("counts", [(400, 310), (310, 400), (150, 560)])
def test_a_fast_head_is_two_regimes_not_a_warm_up(counts: tuple[int, int], fixed: int) -> None:
    dice = random.Random(1)
    samples = [level * noise(dice, 0.02) for level, count in zip((FAST_S, SLOW_S), counts, strict=True) for _ in range(count)]
    verdict = next_step(samples, Sampling(fixed=fixed), 0.1, 32e-9)
    assert (verdict.stopped, verdict.dropped) == ("unstable", 0)
    assert verdict.modes_s == (pytest.approx(FAST_S, rel=0.05), pytest.approx(SLOW_S, rel=0.05))


def test_a_fixed_number_of_alternating_samples_is_unstable() -> None:
    samples = [FAST_S if number % 3 else SLOW_S for number in range(60)]
    assert next_step(samples, Sampling(fixed=60), 0.1) == Decision(stopped="unstable", modes_s=(FAST_S, SLOW_S))


@pytest.mark.parametrize("tick", [1 / 33, 1 / 80, 1 / 256])
def test_ticks_of_a_coarse_clock_are_not_modes(tick: float) -> None:
    for seed in range(TRIALS):
        dice = random.Random(seed)
        samples = [round(noise(dice, 0.02) / tick) * tick for _ in range(dice.randint(24, 400))]
        assert next_step(samples, Sampling(fixed=len(samples)), 0.0, tick).stopped == "fixed"


def test_wide_skewed_samples_are_hardly_ever_two_modes() -> None:
    found = 0
    for seed in range(TRIALS):
        dice = random.Random(seed)
        samples = [dice.paretovariate(2) for _ in range(dice.randint(24, 800))]
        found += next_step(samples, Sampling(fixed=len(samples)), 0.0).stopped == "unstable"
    assert found <= TRIALS // 50
