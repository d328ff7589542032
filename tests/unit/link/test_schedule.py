"""Rounds of pairs that share no host."""

import itertools

import pytest

from busbw.link.schedule import disjoint, pairs_without, rounds


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16, 64])
def test_every_pair_comes_once_in_disjoint_rounds(count):
    all_rounds = rounds(count)
    assert len(all_rounds) == (count - 1 if count % 2 == 0 else count)
    assert sorted(itertools.chain.from_iterable(all_rounds)) == list(
        itertools.combinations(range(count), 2)
    )
    for pairs in all_rounds:
        hosts = list(itertools.chain.from_iterable(pairs))
        assert len(hosts) == len(set(hosts))


def test_fewer_rounds_keep_each_host_in_every_round():
    all_rounds = rounds(64, 5, seed=3)
    assert len(all_rounds) == 5
    assert all(len(pairs) == 32 for pairs in all_rounds)
    assert all_rounds != rounds(64, 5, seed=4)
    assert rounds(4, 9) == rounds(4)


def test_any_pairs_are_spread_over_disjoint_rounds():
    assert disjoint([(0, 1), (0, 2), (2, 3), (1, 3)]) == [[(0, 1), (2, 3)], [(0, 2), (1, 3)]]
    assert disjoint([]) == []


def test_lost_hosts_are_left_out():
    assert pairs_without([(0, 1), (2, 3), (4, 5)], [3, 4]) == [(0, 1)]
