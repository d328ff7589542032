"""The verdict on a run by published runs and by a user's own runs of its system."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.core.topology import Topology
from busbw.model.bounds import parse_ideal
from busbw.model.findings import findings
from busbw.model.reference.curves import Reference, ReferenceCurve, built_in
from busbw.model.usable_hardware import ideals

M, G = 1 << 20, 1 << 30
System = Callable[..., Topology]
H100 = "NVIDIA H100 80GB HBM3"


def run(
    curve: Sequence[tuple[int, float]], hosts: int = 1, per_host: int = 8, **fields: object
) -> Result:
    """An all_reduce over NCCL whose busbw at each size is given in GB/s."""
    ranks = hosts * per_host
    factor = float(BY_NAME["all_reduce"].bus_factor(ranks))
    devices = [
        RankDevice(h * per_host + i, 1, f"h{h}", i, f"0000:{i:02x}:00", H100)
        for h in range(hosts)
        for i in range(per_host)
    ]
    rows = []
    for size, busbw in curve:
        seconds = size * factor / busbw / 1e9
        cell = Cell(seconds, size / seconds, busbw * 1e9, wrong=0)
        rows.append(ResultRow(size, size // 4, "float", "sum", -1, cell, None, 20))
    base = Result(
        spec=SweepSpec(collective="all_reduce"),
        library=EngineLibrary("nccl", 22703),
        world=World(devices, ranks),
        rows=rows,
        complete=True,
    )
    return msgspec.structs.replace(base, **fields)


def bandwidth(result: Result, topology: Topology, known: Reference | None = None) -> RunFinding:
    result.topology = topology
    if result.ideal is None:
        result.ideal, result.endpoint_ideal = ideals(
            "all_reduce", result.world, topology, result.environment
        )
    known_curves = known or built_in()
    by_id = {finding.id: finding for finding in findings(result, topology, lambda: known_curves)}
    assert len(by_id["bandwidth"].message) < 230
    return by_id["bandwidth"]


@pytest.mark.parametrize(
    ("busbw", "verdict", "text"),
    [
        (300.0, Verdict.WARN, "below the expected"),
        (470.0, Verdict.PASS, "published runs of 1 x 8 H100 (sources: busbw reference"),
        (640.0, Verdict.PASS, "above the expected"),
    ],
)
def test_published_runs_decide(system: System, busbw: float, verdict: Verdict, text: str) -> None:
    finding = bandwidth(run([(M, 60), (8 * G, busbw)]), system())
    assert finding.verdict is verdict
    assert text in finding.message
    assert "az_1x8_h100" in finding.evidence


def test_a_size_that_published_runs_have_is_judged(system: System) -> None:
    finding = bandwidth(run([(512 * M, 330), (8 * G, 345)], per_host=2), system(gpus=2))
    assert "busbw is 330 GB/s at 512 MiB" in finding.message
    assert "published runs of 1 x 2 H100" in finding.message


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (run([(G, 350)], per_host=3), "no published run of all_reduce on 1 x 3 H100"),
        (
            run([(512 * M, 350)], environment={"NCCL_ALGO": "Ring"}),
            "NCCL's settings change its choice",
        ),
        (
            run([(G, 40)], hosts=2, library=EngineLibrary("nccl", 22703, network="Socket")),
            "no published run of all_reduce on 2 x 8 H100 with 8x400G",
        ),
    ],
)
def test_the_bound_decides_without_a_reference(system: System, result: Result, reason: str) -> None:
    hosts = len({device.host for device in result.world.devices})
    finding = bandwidth(result, system(hosts, gpus=result.world.ranks // hosts))
    assert "of the wire's" in finding.message
    assert f"no reference: {reason}" in finding.evidence


def test_settings_that_change_nothing_do_not_matter(system: System) -> None:
    without_nvls = run([(512 * M, 330)], per_host=2, environment={"NCCL_NVLS_ENABLE": "0"})
    assert "published runs of 1 x 2 H100" in bandwidth(without_nvls, system(gpus=2)).message


def test_ideal_and_engines_without_nccl_have_no_reference(system: System) -> None:
    by_hand = bandwidth(run([(8 * G, 470)], ideal=parse_ideal("500GB/s")), system())
    assert "94 % of the 500 of --ideal" in by_hand.message
    over_mpi = bandwidth(run([(8 * G, 470)], library=EngineLibrary("mpi")), system())
    assert "reference" not in over_mpi.message + over_mpi.evidence


def test_own_runs_come_before_published_ones(system: System) -> None:
    own = ReferenceCurve(
        source="own",
        run="ours",
        gpu="h100",
        per_host=8,
        collective="all_reduce",
        dtype="float",
        sizes=(M, 8 * G),
        times_us=(30.0, 1.75 * 8 * G / 400e3),  # 400 GB/s
    )
    known = replace(built_in(), own=(own,), by_collective={})
    finding = bandwidth(run([(M, 60), (8 * G, 300)]), system(), known)
    assert "75 % of your own run of 1 x 8 H100" in finding.message
    assert finding.verdict is Verdict.WARN
    assert finding.evidence.startswith("ours; ")
    assert bandwidth(run([(8 * G, 395)]), system(), known).verdict is Verdict.PASS
