"""Times that change while a cell is visited, and the sampling loop on them.

Shared by the tests and by benchmarks/visits.py.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from busbw.core.sweep import Sampling
from busbw.stats.sampling import (
    SAMPLES_PER_VISIT,
    VISIT_S,
    Decision,
    first_visit_samples,
    next_step,
    reported_interval,
)

Levels = Iterator[float]  # the true median of each moment; a moment is the time of one sample
Regime = Callable[[random.Random], Levels]
CVS = (0.005, 0.02, 0.05)  # of the noise of a sample
BETWEEN = 400  # samples of other cells between two visits: 25 of them, with 16 each


def noise(rng: random.Random, cv: float) -> float:
    """A factor with a median of 1."""
    return math.exp(rng.gauss(0, cv))


def constant(_rng: random.Random) -> Levels:
    return itertools.repeat(1.0)


def head(samples: int, level: float) -> Regime:
    """A level for so many samples, then 1 for good."""
    return lambda _rng: itertools.chain(itertools.repeat(level, samples), itertools.repeat(1.0))


def late_step(rng: random.Random) -> Levels:
    return head(rng.randint(60, 4000), rng.choice((0.03, 0.7, 1.3, 30.0)))(rng)


def autocorrelated(keep: float, cv: float) -> Regime:
    def levels(rng: random.Random) -> Levels:
        state = rng.gauss(0, 1)
        while True:
            yield math.exp(cv * state)
            state = keep * state + math.sqrt(1 - keep * keep) * rng.gauss(0, 1)

    return levels


def sine(amplitude: float, period: int) -> Regime:
    def levels(rng: random.Random) -> Levels:
        start = rng.random()
        for number in itertools.count():
            yield 1 + amplitude * math.sin(2 * math.pi * (number / period + start))

    return levels


def pink(cv: float, octaves: int = 13) -> Regime:
    """1/f noise with periods from one sample to 4096: a sum of levels that change after 1, 2, 4
    ... samples.
    """

    def levels(rng: random.Random) -> Levels:
        octave_cv = cv / math.sqrt(octaves)
        parts = [rng.gauss(0, octave_cv) for _ in range(octaves)]
        for number in itertools.count(rng.randrange(1 << octaves)):
            for octave in range(octaves):
                if number % (1 << octave) == 0:
                    parts[octave] = rng.gauss(0, octave_cv)
            yield math.exp(sum(parts))

    return levels


def modes(dwell: float, other: float) -> Regime:
    """Two levels in turn, each for so many samples on average."""

    def levels(rng: random.Random) -> Levels:
        level = rng.choice((1.0, other))
        while True:
            yield from itertools.repeat(level, 1 + int(rng.expovariate(1 / dwell)))
            level = other if level == 1.0 else 1.0

    return levels


def at_random(rng: random.Random) -> Levels:
    share, other = rng.uniform(0.25, 0.75), rng.choice((1.2, 3.0, 300.0))
    while True:
        yield other if rng.random() < share else 1.0


def drift(rng: random.Random) -> Levels:
    by = rng.choice((-0.0002, -0.00005, 0.00001, 0.00005, 0.0002))
    return (math.exp(by * number) for number in itertools.count())


REGIMES: dict[str, Regime] = {
    "independent": constant,
    "slow head of 10": head(10, 1.2),
    "slow head of 50": head(50, 1.2),
    "fast head of 50": head(50, 1 / 1.2),
    "late step": late_step,
    "correlated 0.3": autocorrelated(0.3, 0.03),
    "correlated 0.9": autocorrelated(0.9, 0.03),
    "correlated 0.98": autocorrelated(0.98, 0.03),
    "sine of 500": sine(0.03, 500),
    "pink noise": pink(0.03),
    "modes of 200": modes(200, 1.2),
    "close modes of 200": modes(200, 1.05),
    "at random": at_random,
    "drift": drift,
}


@dataclass
class Trial:
    """Visits of one cell in seconds, the decision, and the true median of all moments from the
    first visit that counts on.
    """

    visits: list[list[float]]
    decision: Decision
    true: float

    def interval(self, confidence: float) -> tuple[float, float] | None:
        return reported_interval(self.visits[self.decision.dropped :], confidence)

    def wrong(self, sampling: Sampling) -> bool:
        """Whether the cell is called precise and its interval misses the true median."""
        low, high = self.interval(sampling.confidence) or (0.0, math.inf)
        return self.decision.stopped == "ok" and not low <= self.true <= high


def trial(
    regime: Regime, sampling: Sampling, seed: int, between: int = BETWEEN, every: int = 1
) -> Trial:
    """The sampling loop, where between two visits about `between` samples of other cells are
    taken, in another order each time. One of `every` moments between visits counts for the true
    median.
    """
    rng = random.Random(seed)
    levels, cv = regime(rng), rng.choice(CVS)

    def moments(number: int, step: int = 1) -> list[float]:
        return [level * noise(rng, cv) for level in itertools.islice(levels, 0, number, step)]

    visits: list[list[float]] = []
    away: list[list[float]] = []
    decision = Decision(more=first_visit_samples(sampling, VISIT_S / SAMPLES_PER_VISIT))
    while decision.more:
        visits.append(moments(decision.more))
        away.append(moments(round(between * rng.uniform(0.5, 1.5)), every))
        decision = next_step(visits, sampling, sum(map(len, visits)) * VISIT_S / SAMPLES_PER_VISIT)
    counted = [*visits[decision.dropped :], *away[decision.dropped :]]
    return Trial(visits, decision, median(itertools.chain.from_iterable(counted)))
