"""What a spine with less than full bandwidth costs."""

from dataclasses import replace
from fractions import Fraction
from math import comb

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.predict import command
from busbw.core.collectives import BY_NAME
from busbw.model.estimate import EstimateInputs, by_links, channels_left, flows_of_nic
from busbw.model.forecast import forecast
from busbw.model.nccl.choice import allowed
from busbw.model.nccl.constants import NVLS_TREE, RING
from busbw.model.spine import (
    Spine,
    _edges_of_both_trees,
    derived_uplinks,
    largest_load,
    tree_crossing,
)
from busbw.model.systems import parse_system, with_nics
from busbw.model.types import Forecast

GIB = 1 << 30
P2P = "point-to-point"


def exactly(flows: int, uplinks: int) -> Fraction:
    """The expected largest load by counting all ways."""
    ways_of_most = []
    for most in range(flows + 1):
        ways = [1] + [0] * flows  # to put so many flows on the uplinks so far
        for _ in range(uplinks):
            ways = [
                sum(comb(total, last) * ways[total - last] for last in range(min(most, total) + 1))
                for total in range(flows + 1)
            ]
        ways_of_most.append(Fraction(ways[flows], uplinks**flows))
    return sum((1 - ways for ways in ways_of_most), Fraction(0))


@given(st.integers(0, 12), st.integers(1, 6))
def test_the_largest_load_is_just_above_that_of_all_ways(flows: int, uplinks: int) -> None:
    expected = float(exactly(flows, uplinks))
    assert expected - 1e-6 <= largest_load(flows, uplinks) <= 1.2 * expected + 1e-6


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 64))
def test_more_switches_have_a_larger_load(flows: int, uplinks: int, switches: int) -> None:
    few, many = largest_load(flows, uplinks), largest_load(flows, uplinks, switches)
    assert flows / uplinks <= few + 1e-6 <= many + 2e-6
    assert many <= flows + 1e-6


@given(st.integers(2, 200))
def test_both_trees_join_all_hosts(hosts: int) -> None:
    edges = _edges_of_both_trees(hosts)
    for tree in (edges[: hosts - 1], edges[hosts - 1 :]):
        assert len({child for child, _ in tree}) == hosts - 1
        joined = {next(iter({parent for _, parent in tree} - {child for child, _ in tree}))}
        for _ in range(hosts.bit_length() + 1):
            joined |= {child for child, parent in tree if parent in joined}
        assert joined == set(range(hosts))
    assert tree_crossing(hosts, 1) == 1


@given(
    st.integers(1, 64),
    st.integers(2, 500),
    st.sampled_from([("all_reduce", RING), ("all_reduce", NVLS_TREE), ("alltoall", P2P)]),
    st.floats(1, 16),
    st.integers(1, 64),
)
def test_collisions_never_help(
    leaf: int, hosts: int, ran: tuple[str, str], over: float, flows: int
) -> None:
    spine = Spine(over, leaf, derived_uplinks(leaf, over))
    share = spine.share(*ran, hosts)
    assert 0 <= share <= 1
    assert (share == 0) == (hosts <= leaf)
    even = spine.divisor(share, flows, hosts, 8)
    assert even == max(1, over * share)
    assert replace(spine, colliding=True).divisor(share, flows, hosts, 8) >= even


def predicted(collective: str, hosts: int, spine: Spine, algorithm: str = "") -> Forecast:
    setting = EstimateInputs(parse_system("h100x8"), spine=spine)
    if algorithm:
        setting = replace(setting, may=allowed({"NCCL_ALGO": algorithm}, collective))
    expected = forecast(setting, BY_NAME[collective], hosts, 8, GIB)
    assert expected is not None
    return expected


def test_only_what_crosses_the_spine_is_slower() -> None:
    full = Spine()
    for collective, algorithm in (("all_reduce", "Ring"), ("all_reduce", ""), ("alltoall", "")):
        free = predicted(collective, 128, full, algorithm).time_s
        assert predicted(collective, 128, Spine(4, 128), algorithm).time_s == free
        assert predicted(collective, 128, Spine(4), algorithm).time_s > 1.5 * free
    assert predicted("all_reduce", 128, Spine(4, 32)) == predicted("all_reduce", 128, full)
    exchange = [predicted("alltoall", 128, Spine(4, leaf)).time_s for leaf in (0, 1, 32, 96, 128)]
    assert exchange == sorted(exchange, reverse=True)
    transfer = 127 / 128 * GIB / 8 / (parse_system("h100x8").payload_nic * 127 / 96 / 4)
    assert exchange[2] == pytest.approx(8 * transfer, rel=0.1)  # below ALLTOALL_OF_NICS


def test_collisions_lower_only_the_low_end() -> None:
    even, hashed = (predicted("alltoall", 128, Spine(2, 32, uplinks)) for uplinks in (0, 16))
    assert hashed.low < even.low
    assert msgspec.structs.replace(hashed, low=even.low) == even
    ring = [predicted("all_reduce", 128, Spine(2, 32, uplinks), "Ring") for uplinks in (0, 16)]
    assert ring[0] == ring[1]  # all flows of a ring that leave a leaf are those of one NIC


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--oversubscription", "4"], "1/4 of the NICs' rate, as if all of it crossed the spine"),
        (["--oversubscription", "4", "--hosts-per-leaf", "32"], "32 hosts under each leaf switch"),
        (["--hosts-per-leaf", "32", "--ecmp", "auto"], "to 32 uplinks at random: an assumption"),
    ],
)
def test_the_answer_says_what_crosses(options: list[str], text: str) -> None:
    line = ["--system", "h100x8", "--nodes", "128", "-b", "1G", "-e", "1G", *options]
    output = CliRunner().invoke(command, line, standalone_mode=False).output
    assert text in " ".join(output.split())


@pytest.mark.parametrize(
    ("nics", "collective", "algorithm", "hosts", "flows"),
    [
        ("8x400G", "all_reduce", RING, 4, 1),  # one for each of 8 channels
        ("4x400G", "all_reduce", RING, 4, 2),
        ("8x400G", "all_reduce", "Tree", 2, 1),
        ("8x400G", "all_reduce", "Tree", 4, 2),  # to the neighbors in both trees
        ("8x400G", "alltoall", P2P, 4, 3),  # to each other host
        ("8x400G", "sendrecv", P2P, 4, 4),  # the channels of a send
    ],
)
def test_flows_that_a_nic_carries_at_once(
    nics: str, collective: str, algorithm: str, hosts: int, flows: int
) -> None:
    setting = EstimateInputs(with_nics(parse_system("h100x8"), nics))
    assert flows_of_nic(setting, collective, algorithm, hosts, 8) == flows


def test_a_limit_of_ctas_leaves_a_part_of_the_channels() -> None:
    limited = EstimateInputs(parse_system("h100x8"), ctas=4)
    assert channels_left(limited, RING, 4, 8) == 4 / 8
    assert channels_left(limited, NVLS_TREE, 4, 8) == 4 / 16
    assert channels_left(limited, P2P, 4, 8) == 1
    assert channels_left(replace(limited, ctas=32), RING, 4, 8) == 1


def test_latency_of_racks_grows_with_the_logarithm_of_their_number() -> None:
    setting = EstimateInputs(parse_system("gb300nvl72"))
    chosen = [by_links(setting, "all_reduce", racks, 72, GIB) for racks in (2, 4, 6, 8)]
    latency_us = [choice.parts.latency_s * 1e6 for choice in chosen if choice is not None]
    assert latency_us == pytest.approx([66.8, 108.6, 133.1, 150.4], abs=0.1)
