"""Measurements of single pairs of ranks: which pairs, how many, and how a slow one is found."""

import pytest

from busbw.core.result import RankDevice
from busbw.core.sweep import SweepSpec
from busbw.engines.sim import SimEngine
from busbw.launch.control import SoloControl
from busbw.measure import links
from busbw.measure.batches import HeldBatches


def devices(hosts: list[str]) -> list[RankDevice]:
    return [RankDevice(rank, 1, host, rank, "", "CPU") for rank, host in enumerate(hosts)]


def test_pairs_of_one_host_or_one_rank_per_host() -> None:
    assert links.pairs(devices(["h"] * 4)) == [(0, 1), (0, 3), (1, 2), (2, 3), (0, 2), (1, 3)]
    assert sorted(links.pairs(devices(["a", "a", "b", "b", "c", "c"]))) == [(0, 2), (0, 4), (2, 4)]


def test_pairs_are_bounded_and_every_rank_is_in_some() -> None:
    chosen = links.pairs(devices(["h"] * 100))
    assert len(chosen) == links.MAX_PAIRS
    assert {rank for pair in chosen for rank in pair} == set(range(100))


def measured(ranks: int, room: int = 1 << 20, **parameters: float) -> list[tuple[int, int, float]]:
    engine = SimEngine(ranks, {"noise": 0.0, "alpha_us": 1.0, **parameters})
    engine.allocate(room, room)
    batches = HeldBatches(engine, SweepSpec(collective="all_reduce"))
    measured_links = links.measure(
        engine, SoloControl(), batches, engine.devices(), room, lambda *_: None, 0
    )
    return [(link.a, link.b, link.bandwidth) for link in measured_links]


def test_all_pairs_of_a_slow_rank_are_slow() -> None:
    measured_links = measured(4, slow_rank=2.0, slow_gbps=5.0)
    assert len(measured_links) == 6
    slow = {
        (a, b)
        for a, b, bandwidth in measured_links
        if bandwidth < 0.5 * max(other for _, _, other in measured_links)
    }
    assert slow == {(0, 2), (1, 2), (2, 3)}


def test_only_pairs_of_a_late_rank_wait_for_it() -> None:
    usual = {bandwidth for _, _, bandwidth in measured(4)}
    measured_links = measured(4, late_rank=2.0, late_us=200.0)
    assert [(a, b) for a, b, bandwidth in measured_links if bandwidth < 0.5 * min(usual)] == [
        (1, 2),
        (2, 3),
        (0, 2),
    ]
    assert all(
        bandwidth == pytest.approx(min(usual))
        for a, b, bandwidth in measured_links
        if 2 not in (a, b)
    )


@pytest.mark.parametrize(
    ("ranks", "room"), [(2, 1 << 20), (4, 1 << 12)], ids=["nothing to compare", "no room for data"]
)
def test_pairs_are_not_measured_when_uninformative(ranks: int, room: int) -> None:
    assert measured(ranks, room) == []
