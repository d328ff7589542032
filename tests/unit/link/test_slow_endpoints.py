"""Slow ends are found in simulated tournaments, and none is accused without being slow."""

import importlib.util
from pathlib import Path

import pytest

from busbw.link.slow_endpoints import End, PairRate, solve

TRIALS = 6  # of the 1,000 of benchmarks/link_tournaments.py


@pytest.fixture(scope="module")
def simulation():
    """benchmarks/link_tournaments.py as a module."""
    path = Path(__file__).parents[3] / "benchmarks" / "link_tournaments.py"
    spec = importlib.util.spec_from_file_location("link_tournaments", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_slow_ends_of_64_hosts_are_found_and_no_other(simulation, bad):
    score = simulation.score(TRIALS, bad)
    assert (score.exact, score.missed, score.false) == (TRIALS, 0, 0)


@pytest.mark.parametrize("bad", [0, 3])
def test_40_slow_pairs_are_not_blamed_on_their_hosts(simulation, bad):
    score = simulation.score(TRIALS, bad, slow_pairs=40)
    assert (score.exact, score.missed, score.false) == (TRIALS, 0, 0)
    assert score.pairs_named > 0.99 * score.pairs > 0


@pytest.mark.parametrize("bad", [0, 3])
def test_six_random_rounds_find_the_same(simulation, bad):
    score = simulation.score(TRIALS, bad, most=6)
    assert score.missed == 0
    assert score.false <= 2, "other traffic may slow most of the six transfers of an end"


def test_a_pair_is_compared_with_the_slower_of_its_ends():
    """Host 0 sends 9 % less than others, which is normal.

    Its pair with 5 is 15 % below its level, and 23 % below that of 5.
    """
    rates = {(0, peer): 91.0 for peer in range(8)} | {(0, 5): 77.0}
    solution = solve(
        [PairRate(a, b, rates.get((a, b), 100.0)) for a in range(8) for b in range(8) if a != b]
    )
    assert (solution.ends, solution.pairs) == ((), ())
    rates[0, 5] = 72.0  # 21 % below
    solution = solve(
        [PairRate(a, b, rates.get((a, b), 100.0)) for a in range(8) for b in range(8) if a != b]
    )
    assert [(pair.sender, pair.receiver) for pair in solution.pairs] == [(0, 5)]


def test_pairs_of_a_host_that_is_less_fast_are_not_slow():
    flows = [
        PairRate(a, b, 91.0 if a == 0 else 100.0) for a in range(8) for b in range(8) if a != b
    ]
    assert solve(flows).pairs == ()


def test_a_slow_pair_does_not_accuse_its_hosts():
    flows = [PairRate(a, b, 100.0 + a - b) for a in range(8) for b in range(8) if a != b]
    flows = [
        PairRate(2, 5, 40.0) if (flow.sender, flow.receiver) == (2, 5) else flow for flow in flows
    ]
    solution = solve(flows)
    assert solution.ends == ()
    assert [(pair.sender, pair.receiver) for pair in solution.pairs] == [(2, 5)]


def test_pairs_of_a_slow_host_are_not_slow_pairs():
    flows = [
        PairRate(a, b, 50.0 if 1 in (a, b) else 100.0) for a in range(6) for b in range(6) if a != b
    ]
    solution = solve(flows)
    assert {level.end for level in solution.ends} == {End(1, True), End(1, False)}
    assert solution.pairs == ()
    assert solution.usual == 100.0


def test_a_host_slow_in_both_directions_among_three_is_named():
    solution = solve(
        [
            PairRate(a, b, 50.0 if 0 in (a, b) else 100.0)
            for a in range(3)
            for b in range(3)
            if a != b
        ]
    )
    assert {level.end for level in solution.ends} == {End(0, True), End(0, False)}
    assert solution.usual == 100.0


def test_two_halves_with_a_narrow_way_between_are_slow_pairs():
    """Eight hosts below two switches: more than half of the pairs are slow, and no host is."""
    directed_pairs = [(a, b) for a in range(8) for b in range(8) if a != b]
    solution = solve(
        [PairRate(a, b, 100.0 if a // 4 == b // 4 else 50.0) for a, b in directed_pairs]
    )
    assert solution.ends == ()
    assert {pair[:2] for pair in solution.pairs} == {
        (a, b) for a, b in directed_pairs if a // 4 != b // 4
    }


def test_slow_hosts_are_named_where_most_are_slow():
    solution = solve(
        [
            PairRate(a, b, 60.0 if min(a, b) < 5 else 100.0)
            for a in range(8)
            for b in range(8)
            if a != b
        ]
    )
    assert {level.end.host for level in solution.ends} == {0, 1, 2, 3, 4}
    assert solution.usual == 100.0


def test_one_peer_each_is_too_few():
    """With one peer each, a slow endpoint cannot be distinguished from a slow pair."""
    assert (
        solve(
            [
                PairRate(0, 1, 100.0),
                PairRate(1, 0, 100.0),
                PairRate(2, 3, 100.0),
                PairRate(3, 2, 30.0),
            ]
        ).usual
        is None
    )


def test_small_differences_accuse_nobody():
    flows = [
        PairRate(a, b, 93.0 if a == 0 else 100.0) for a in range(5) for b in range(5) if a != b
    ]
    assert solve(flows).ends == ()


def test_three_hosts_suffice_for_one_slow_host():
    flows = [
        PairRate(a, b, 50.0 if a == 0 else 100.0) for a in range(3) for b in range(3) if a != b
    ]
    assert [level.end for level in solve(flows).ends] == [End(0, True)]


@pytest.mark.parametrize(
    "flows",
    [
        [],
        [PairRate(0, 1, 1.0)],
        [PairRate(0, 1, 9.0), PairRate(1, 0, 1.0)],
        [PairRate(0, 1, 1.0), PairRate(1, 2, 2.0)],
    ],
)
def test_too_few_pairs_are_not_judged(flows):
    assert solve(flows).usual is None
