"""Slow hosts are found with few runs of a simulated collective, which is as fast as its slowest
host, and only beyond its noise.
"""

import math
import random
from collections.abc import Sequence
from statistics import median

import pytest

from busbw.link.suspects import halves, pairs, spread

# deviations of hosts and runs; share of runs that other traffic slows
VARIES, NOISE, DISTURBED = 0.01, 0.02, 0.03


class Cluster:
    """`bad` slow hosts; with `together`, two hosts are slow only with each other."""

    def __init__(
        self,
        seed: int,
        count: int,
        bad: int,
        together: Sequence[int] = (),
        noise: float = NOISE,
        drift: float = 0.0,
    ) -> None:
        self.draw, self.runs, self.together = random.Random(seed), 0, set(together)
        self.noise, self.drift, self.load = noise, drift, 0.0
        self.rates = [100 * (1 + self.draw.gauss(0, VARIES)) for _ in range(count)]
        self.slow = set(self.draw.sample(range(count), bad))
        for host in self.slow:
            self.rates[host] *= self.draw.uniform(0.3, 0.75)

    def run(self, group: Sequence[int]) -> float:
        self.runs += 1
        # of the machine, from run to run
        self.load = 0.9 * self.load + self.draw.gauss(0, self.drift)
        rate = min(self.rates[host] for host in group) * math.exp(
            self.draw.gauss(0, self.noise) + self.load
        )
        rate *= 0.5 if self.together and self.together <= set(group) else 1
        return rate * (self.draw.uniform(0.5, 0.9) if self.draw.random() < DISTURBED else 1)


@pytest.mark.parametrize(("bad", "usual"), [(0, 24), (1, 43), (2, 62), (3, 80)])
def test_halving_finds_slow_hosts_of_64_and_no_other(bad, usual):
    clusters = [Cluster(seed, 64, bad) for seed in range(80)]
    outcomes = [halves(64, cluster.run, seed) for seed, cluster in enumerate(clusters)]
    assert median(cluster.runs for cluster in clusters) <= usual + 2
    assert innocent(outcomes, clusters) == 0
    assert missed(outcomes, clusters) <= 3
    assert sum(outcome.noisy for outcome in outcomes) == 0


def innocent(outcomes, clusters):
    """Searches that accused a host that is not slow."""
    return sum(
        not {host for suspect in outcome.found for host in suspect.hosts} <= cluster.slow
        for outcome, cluster in zip(outcomes, clusters, strict=True)
    )


def missed(outcomes, clusters):
    """Searches that did not name every slow host."""
    return sum(
        not cluster.slow <= {host for suspect in outcome.found for host in suspect.hosts}
        for outcome, cluster in zip(outcomes, clusters, strict=True)
    )


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("search", [halves, pairs])
@pytest.mark.parametrize(("noise", "drift"), [(0.08, 0.0), (0.15, 0.0), (0.05, 0.08)])
def test_equal_hosts_on_a_busy_machine_are_not_accused(search, count, noise, drift):
    """Two runs over the same hosts typically differ by 8 % and more: no host is accused, and
    most searches do not clear them either.
    """
    clusters = [Cluster(seed, count, 0, noise=noise, drift=drift) for seed in range(150)]
    outcomes = [search(count, cluster.run, seed) for seed, cluster in enumerate(clusters)]
    assert innocent(outcomes, clusters) <= 2
    assert sum(outcome.noisy for outcome in outcomes) >= 75


@pytest.mark.parametrize("search", [halves, pairs])
def test_a_slow_host_on_a_busy_machine_is_named_or_left_open(search):
    clusters = [Cluster(seed, 8, 1, noise=0.08) for seed in range(150)]
    outcomes = [search(8, cluster.run, seed) for seed, cluster in enumerate(clusters)]
    confident = [
        (outcome, cluster)
        for outcome, cluster in zip(outcomes, clusters, strict=True)
        if outcome.found or not (outcome.noisy or outcome.left_open)
    ]
    assert innocent(outcomes, clusters) <= 1
    assert missed(*zip(*confident, strict=True)) <= 7
    assert len(confident) >= 135


def test_two_runs_that_differ_are_given_as_a_share():
    assert spread([[100.0, 110.0, 100.0], [50.0, 0.0, 55.0]]) == pytest.approx(0.1)
    assert spread([[0.0, 5.0], []]) is None


def test_failed_runs_decide_soon():
    """A run that fails takes as long as the limit of its start."""
    runs = []

    def run(group):
        runs.append(group)
        return None if 5 in group else 100.0

    suspects = halves(16, run).found
    assert [(suspect.hosts, suspect.share) for suspect in suspects] == [((5,), None)]
    assert sum(5 in group for group in runs) <= 5


def test_halving_finds_two_hosts_that_are_slow_together():
    successes = 0
    for seed in range(100):
        cluster = Cluster(seed, 64, 0, together=(3, 40))
        hosts = [suspect.hosts for suspect in halves(64, cluster.run, seed).found]
        assert hosts in ([], [(3, 40)])
        successes += bool(hosts)
    assert successes >= 5, "one in nine times both are in the same of the first groups"


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_pairs_find_slow_hosts_of_16_and_no_other(bad):
    clusters = [Cluster(seed, 16, bad) for seed in range(40)]
    outcomes = [pairs(16, cluster.run, 0, seed) for seed, cluster in enumerate(clusters)]
    assert innocent(outcomes, clusters) == 0
    assert missed(outcomes, clusters) <= 1
    assert median(cluster.runs for cluster in clusters) <= 160 + bad * 12


def test_pairs_find_two_hosts_that_are_slow_together():
    outcome = pairs(8, lambda pair: 40.0 if set(pair) == {2, 5} else 100.0)
    assert [(suspect.hosts, suspect.share) for suspect in outcome.found] == [((2, 5), 0.4)]
    assert outcome.usual == 100.0


def test_a_pair_whose_runs_fail_is_found():
    outcome = pairs(4, lambda pair: None if set(pair) == {0, 1} else 100.0)
    assert [(suspect.hosts, suspect.share) for suspect in outcome.found] == [((0, 1), None)]


def test_without_any_result_nobody_is_accused():
    assert halves(8, lambda group: None).usual is None
    assert pairs(3, lambda pair: None).usual is None


def test_halving_needs_four_hosts():
    with pytest.raises(ValueError, match="four hosts"):
        halves(3, lambda group: 1.0)
