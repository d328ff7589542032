"""Slow ends are found in simulated tournaments, and none is accused without being slow."""

import random

import pytest

from busbw.link.schedule import rounds
from busbw.link.solver import End, Measured, solve

HOST, NOISE, DISTURBED = 0.015, 0.02, 0.05  # deviations of hosts and transfers; share of transfers that other traffic slows
SLOW = (0.3, 0.75)  # of the usual rate


def tournament(seed, hosts, bad, most=0):
    """The ends that are slow, and the transfers: hosts and transfers vary, and other traffic slows some transfers."""
    draw = random.Random(seed)
    rates = {End(host, sends): 100 * (1 + draw.gauss(0, HOST)) for host in range(hosts) for sends in (True, False)}
    slow = set()
    for host in draw.sample(range(hosts), bad):
        for sends in draw.choice([(True,), (False,), (True, False)]):
            rates[End(host, sends)] *= draw.uniform(*SLOW)
            slow.add(End(host, sends))
    flows = []
    for pairs in rounds(hosts, most, seed):
        for sender, receiver in [way for a, b in pairs for way in ((a, b), (b, a))]:
            rate = min(rates[End(sender, True)], rates[End(receiver, False)]) * (1 + draw.gauss(0, NOISE))
            flows.append(Measured(sender, receiver, rate * (draw.uniform(0.5, 0.9) if draw.random() < DISTURBED else 1)))
    return slow, flows


@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_slow_ends_of_64_hosts_are_found_and_no_other(bad):
    for seed in range(250):  # 1,000 tournaments in all
        slow, flows = tournament(seed, 64, bad)
        assert {one.end for one in solve(flows).ends} == slow, f"seed {seed}"


@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_six_random_rounds_find_the_same(bad):
    runs = [tournament(seed, 64, bad, 6) for seed in range(250)]
    found = [(slow, {one.end for one in solve(flows).ends}) for slow, flows in runs]
    assert all(slow <= accused for slow, accused in found)
    assert sum(slow != accused for slow, accused in found) <= 5, "false alarms of 250"


def test_a_slow_pair_does_not_accuse_its_hosts():
    flows = [Measured(a, b, 100.0 + a - b) for a in range(8) for b in range(8) if a != b]
    flows = [Measured(2, 5, 40.0) if (one.sender, one.receiver) == (2, 5) else one for one in flows]
    found = solve(flows)
    assert found.ends == ()
    assert [(one.sender, one.receiver) for one in found.pairs] == [(2, 5)]


def test_pairs_of_a_slow_host_are_not_slow_pairs():
    flows = [Measured(a, b, 50.0 if 1 in (a, b) else 100.0) for a in range(6) for b in range(6) if a != b]
    found = solve(flows)
    assert {one.end for one in found.ends} == {End(1, True), End(1, False)}
    assert found.pairs == ()
    assert found.usual == 100.0


def test_small_differences_accuse_nobody():
    flows = [Measured(a, b, 93.0 if a == 0 else 100.0) for a in range(5) for b in range(5) if a != b]
    assert solve(flows).ends == ()


def test_three_hosts_suffice_for_one_slow_host():
    flows = [Measured(a, b, 50.0 if a == 0 else 100.0) for a in range(3) for b in range(3) if a != b]
    assert [one.end for one in solve(flows).ends] == [End(0, True)]


@pytest.mark.parametrize(
    "flows", [[], [Measured(0, 1, 1.0)], [Measured(0, 1, 9.0), Measured(1, 0, 1.0)], [Measured(0, 1, 1.0), Measured(1, 2, 2.0)]]
)
def test_too_few_pairs_are_not_judged(flows):
    assert solve(flows).usual is None
