"""The finding on an uneven alltoallv, and the bounds that follow from its matrix."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.alltoallv import traffic
from busbw.core.collectives import BY_NAME
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.core.topology import Topology
from busbw.model.bounds import Features, bounds
from busbw.model.fabric import Fabric, NoFabric, fabric
from busbw.model.rule import Run, apply
from busbw.model.traffic_findings import RULES
from busbw.model.usable_hardware import ideals

MIB = 1 << 20
System = Callable[..., Topology]


def finding(
    matrix: list[list[int]], counts: str = "", ends_s: list[float] | None = None
) -> RunFinding | None:
    ranks = len(matrix)
    devices = [RankDevice(rank, 1, "h1", rank, "", "CPU", process=rank) for rank in range(ranks)]
    rows = [
        ResultRow(size, 4, "float", "", -1, Cell(1e-3, 1e9, 1e9, ends_s=ends_s), None, 8)
        for size in (MIB, 4 * MIB)
    ]
    measured = Result(
        SweepSpec(collective="alltoallv", counts=counts),
        library=EngineLibrary("mpi"),
        world=World(devices, ranks),
        rows=rows,
        traffic=traffic(matrix, counts, ["h1"] * ranks),
    )
    return next(iter(apply(RULES, Run(measured, measured.topology))), None)


def test_the_busiest_rank_is_named_with_its_factor_and_the_measured_ends() -> None:
    uneven = finding([[0, MIB, 0], [0, 0, 0], [3 * MIB, 4 * MIB, 0]], ends_s=[0.5e-3, 4e-3, 5e-3])
    assert uneven is not None
    assert uneven.verdict is Verdict.WARN
    assert (
        uneven.message
        == "rank 2 on h1 sends 7 MiB to the others, 2.62 times the mean of all ranks, and receives"
        " 0 B: spread evenly over equal links, the same data would take 38 % of the time"
    )
    assert (
        uneven.evidence
        == "hottest pair at 7 MiB: rank 2 to rank 1, 4 MiB, 3.00 times the mean of all pairs; "
        "at 4 MiB rank 2 ends last, after 5 ms, rank 0 first, after 500 us"
    )
    assert uneven.fix.endswith("send each row once per batch")
    lookup = finding([[0, 0], [MIB, 0]], "zipf:1.05,sorted")
    assert lookup is not None and lookup.fix.endswith(
        "send each row once per batch; --counts zipf:1.05,sorted,dedup shows what that gives"
    )
    backward = finding([[0, 0, 3 * MIB], [MIB, 0, 4 * MIB], [0, 0, 0]])
    assert backward is not None
    assert backward.message.startswith(
        "rank 2 on h1 receives 7 MiB from the others, 2.62 times the mean of all ranks, and sends"
        " 0 B: "
    )


def test_even_requested_counts_are_reported_as_even() -> None:
    even = [[MIB] * 4] * 4
    assert finding(even) is None
    uneven = finding(even, "zipf:0")
    assert uneven is not None
    assert (uneven.verdict, uneven.message) == (
        Verdict.PASS,
        (
            "the ranks move about the same: rank 0 on h1 moves the most, 1.00 times the mean of all"
            " ranks"
        ),
    )


def bound(fab: Fabric, matrix: list[list[int]] | None) -> float:
    hosts = [str(rank // fab.per_host) for rank in range(fab.ranks)]
    (ideal,) = bounds(
        BY_NAME["alltoallv"],
        replace(fab, traffic=traffic(matrix, "", hosts) if matrix else None),
        Features(),
    )
    return ideal.busbw


def links(system: System, hosts: int, ranks: int) -> Fabric:
    fabric_ = fabric(system(hosts, gpus=ranks, nics=ranks).hosts, [ranks] * hosts)
    assert not isinstance(fabric_, NoFabric)
    return fabric_


@pytest.mark.parametrize(("hosts", "ranks"), [(1, 4), (2, 1), (2, 4), (3, 2)])
def test_an_even_matrix_has_the_bound_of_alltoall(system: System, hosts: int, ranks: int) -> None:
    fab = links(system, hosts, ranks)
    assert bound(fab, [[64] * fab.ranks] * fab.ranks) == pytest.approx(bound(fab, None))


def test_the_busiest_rank_and_the_busiest_host_bound_by_hand(system: System) -> None:
    # Rank 0 sends 3 MiB of which 1 to itself: 2 MiB over 450 GB/s, where busbw counts 3/4 of 3 MiB.
    one_host = links(system, 1, 4)
    assert bound(one_host, [[MIB, MIB, MIB, 0], [0] * 4, [0] * 4, [0] * 4]) == pytest.approx(
        450e9 * 2.25 / 2
    )
    # 2 hosts with 2 x 50 GB/s: 2 MiB leave host 0 in all, of which busbw counts 3/4 x 2.
    two_hosts = links(system, 2, 2)
    assert bound(two_hosts, [[0, 0, 2 * MIB, 0], [0] * 4, [0] * 4, [0] * 4]) == pytest.approx(
        100e9 * 1.5 / 2
    )


@given(st.lists(st.lists(st.integers(0, 1 << 20), min_size=4, max_size=4), min_size=4, max_size=4))
def test_no_link_carries_more_than_its_rate_at_the_bound(matrix: list[list[int]]) -> None:
    fab = Fabric(
        2, 2, 450e9, "NVLink", None, over_nvlink=True, nics=100e9, rail=50e9, nic_link="NICs"
    )
    matrix_traffic = traffic(matrix, "", ["0", "0", "1", "1"])
    if matrix_traffic is None:
        return
    time_s = matrix_traffic.size_bytes * 3 / 4 / bound(fab, matrix)
    assert max(
        matrix_traffic.rank_bytes / 450e9, matrix_traffic.host_bytes / 100e9
    ) == pytest.approx(time_s)


def test_the_ideal_of_a_run_uses_its_matrix(system: System) -> None:
    topology = system(1, gpus=4)
    world = World(
        [RankDevice(rank, 1, "h0", rank, f"0000:0{rank}:00", "H100") for rank in range(4)], 4
    )
    hot = traffic([[0, MIB, MIB, MIB], [0] * 4, [0] * 4, [0] * 4], "", ["h0"] * 4)
    (even, _), (uneven, endpoint) = (
        ideals("alltoallv", world, topology, {}, matrix_traffic) for matrix_traffic in (None, hot)
    )
    assert even is not None and uneven is not None and endpoint is not None
    assert even.busbw == pytest.approx(450e9)
    assert uneven.busbw == endpoint.busbw == pytest.approx(450e9 * 0.75), (
        "busbw counts 3/4 of what rank 0 sends"
    )
    assert uneven.why.startswith("B S/X = 450 x 0.75 = 337.5 GB/s: ")
