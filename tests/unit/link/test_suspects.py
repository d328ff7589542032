"""Slow hosts are found with few runs of a simulated collective, which is as fast as its slowest host."""

import random
from collections.abc import Sequence

import pytest

from busbw.link.suspects import halves, pairs

VARIES, NOISE, DISTURBED = 0.01, 0.02, 0.03  # deviations of hosts and runs; share of runs that other traffic slows


class Cluster:
    """`bad` slow hosts; with `together`, two hosts are slow only with each other."""

    def __init__(self, seed: int, count: int, bad: int, together: Sequence[int] = ()) -> None:
        self.draw, self.runs, self.together = random.Random(seed), 0, set(together)
        self.rates = [100 * (1 + self.draw.gauss(0, VARIES)) for _ in range(count)]
        self.slow = set(self.draw.sample(range(count), bad))
        for host in self.slow:
            self.rates[host] *= self.draw.uniform(0.3, 0.75)

    def run(self, group: Sequence[int]) -> float:
        self.runs += 1
        rate = min(self.rates[host] for host in group) * (1 + self.draw.gauss(0, NOISE))
        rate *= 0.5 if self.together and self.together <= set(group) else 1
        return rate * (self.draw.uniform(0.5, 0.9) if self.draw.random() < DISTURBED else 1)


@pytest.mark.parametrize(("bad", "most"), [(0, 20), (1, 32), (2, 48), (3, 56)])
def test_halving_finds_slow_hosts_of_64_and_no_other(bad, most):
    for seed in range(250):
        cluster = Cluster(seed, 64, bad)
        found = halves(64, cluster.run, seed).found
        assert {host for one in found for host in one.hosts} == cluster.slow, f"seed {seed}"
        assert cluster.runs <= most


def test_halving_finds_two_hosts_that_are_slow_together():
    found = 0
    for seed in range(100):
        cluster = Cluster(seed, 64, 0, together=(3, 40))
        hosts = [one.hosts for one in halves(64, cluster.run, seed).found]
        assert hosts in ([], [(3, 40)])
        found += bool(hosts)
    assert found >= 5, "one in nine times both are in the same of the first groups"


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_pairs_find_slow_hosts_of_16_and_no_other(bad):
    for seed in range(100):
        cluster = Cluster(seed, 16, bad)
        outcome = pairs(16, cluster.run)
        assert {one.hosts[0] for one in outcome.found if len(one.hosts) == 1} == cluster.slow, f"seed {seed}"
        assert cluster.runs == 120


def test_pairs_find_two_hosts_that_are_slow_together():
    outcome = pairs(8, lambda pair: 40.0 if set(pair) == {2, 5} else 100.0)
    assert [(one.hosts, one.share) for one in outcome.found] == [((2, 5), 0.4)]
    assert outcome.usual == 100.0


def test_a_pair_whose_runs_fail_is_found():
    outcome = pairs(4, lambda pair: None if set(pair) == {0, 1} else 100.0)
    assert [(one.hosts, one.share) for one in outcome.found] == [((0, 1), None)]


def test_a_host_whose_runs_fail_is_found_by_halving():
    found = halves(16, lambda group: None if 5 in group else 100.0).found
    assert [(one.hosts, one.share) for one in found] == [((5,), None)]


def test_without_any_result_nobody_is_accused():
    assert halves(8, lambda group: None).usual is None
    assert pairs(3, lambda pair: None).usual is None


def test_halving_needs_four_hosts():
    with pytest.raises(ValueError, match="four hosts"):
        halves(3, lambda group: 1.0)
