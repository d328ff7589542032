"""Findings of runs: published runs, runs measured on two H200, and one run for each anomaly."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import (
    Cell,
    EngineLibrary,
    Ideal,
    Mismatch,
    RankDevice,
    Result,
    ResultRow,
    World,
)
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.topology import Topology
from busbw.model.bounds import parse_ideal
from busbw.model.findings import findings
from busbw.model.usable_hardware import ideals

System = Callable[..., Topology]
K, M, G = 1 << 10, 1 << 20, 1 << 30


def cell(collective: str, ranks: int, size: int, busbw_gb: float) -> Cell:
    factor = float(BY_NAME[collective].bus_factor(ranks)) or 1.0
    seconds = size * factor / (busbw_gb * 1e9) if busbw_gb else 20e-6
    return Cell(seconds, size / seconds, busbw_gb * 1e9, wrong=0)


def run(
    curve: Sequence[tuple[int, float]],
    *,
    hosts: int = 1,
    per_host: int = 8,
    collective: str = "all_reduce",
    cpu: bool = False,
    environment: dict[str, str] | None = None,
) -> Result:
    """A run whose busbw at each size is given in GB/s, on the GPUs 0000:0i:00 of hosts h0, h1
    ...
    """
    devices = [
        RankDevice(h * per_host + i, 1, f"h{h}", i, "" if cpu else f"0000:{i:02x}:00", "GPU")
        for h in range(hosts)
        for i in range(per_host)
    ]
    rows = [
        ResultRow(
            size,
            size // 4,
            "float",
            "sum",
            -1,
            cell(collective, hosts * per_host, size, busbw),
            None,
            20,
        )
        for size, busbw in curve
    ]
    world, spec = World(devices, hosts * per_host), SweepSpec(collective=collective)
    return Result(
        spec,
        library=EngineLibrary("nccl"),
        world=world,
        rows=rows,
        environment=environment or {},
        complete=True,
    )


def judged(result: Result, topology: Topology) -> dict[str, RunFinding]:
    """Findings by id, with the ideals filled in as a run fills them in."""
    if result.ideal is None:
        result.ideal, result.endpoint_ideal = ideals(
            result.spec.collective, result.world, topology, result.environment
        )
    by_id = findings(result, topology)
    assert len({finding.id for finding in by_id}) == len(by_id), "no finding repeats"
    assert all(len(finding.message) < 230 for finding in by_id)
    return {finding.id: finding for finding in by_id}


# nccl-tests on two H200 with NVLS off.
H200X2 = [
    (8, 0.0005),
    (1 * M, 42.0),
    (8 * M, 140.0),
    (16 * M, 185.0),
    (128 * M, 300.0),
    (1 * G, 338.0),
    (8 * G, 347.0),
]
H200 = {"gpus": 2, "name": "NVIDIA H200", "nics": 0}


def test_a_healthy_run_on_two_h200(system: System) -> None:
    by_id = judged(run(H200X2, per_host=2, environment={"NCCL_NVLS_ENABLE": "0"}), system(**H200))
    assert [(finding.id, finding.verdict.value) for finding in by_id.values()] == [
        ("data", "pass"),
        ("bandwidth", "pass"),
        ("latency", "pass"),
    ]
    assert by_id["data"].message == "no wrong element in 7 checks"
    assert (
        by_id["bandwidth"].message
        == "busbw reaches 347 GB/s at 8 GiB, 77 % of the wire's 450 (Ring over NVLink, 18 links x"
        " 25 GB/s), 94 % of the 370.8 that NCCL plans with"
    )
    assert by_id["bandwidth"].evidence.endswith("; warns below 80 % of what NCCL plans with")
    assert (
        by_id["latency"].message
        == "8 B takes 16 us; bandwidth-bound from 16 MiB on, where busbw reaches half of its peak"
    )


def test_two_hosts_of_h100_at_464_8_rule_out_ring_and_tree(system: System) -> None:
    by_id = judged(run([(4 * G, 461.0), (16 * G, 464.8)], hosts=2), system(2))
    assert (
        by_id["algorithm"].message
        == "464.8 GB/s rules out Ring (at most 400), Tree (at most 421.9); possible: NVLSTree (750)"
    )
    assert by_id["bandwidth"].verdict is Verdict.PASS
    assert (
        by_id["bandwidth"].message
        == "busbw reaches 464.8 GB/s at 16 GiB, 62 % of the wire's 750 (NVLSTree over NVLink, 18"
        " links x 25 GB/s)"
    )


def test_h20_hosts_at_479_9_need_over_200_gb_of_network(system: System) -> None:
    h20 = {"name": "NVIDIA H20"}
    assert (
        "possible: NVLSTree (750)"
        in judged(run([(8 * G, 479.9)], hosts=2), system(2, **h20))["algorithm"].message
    )
    above = judged(run([(8 * G, 479.9)], hosts=2), system(2, nics=4, **h20))["above_bounds"]
    assert above.verdict is Verdict.WARN
    assert (
        above.message
        == "busbw (479.9 GB/s at 8 GiB) is above all bounds: Ring (at most 200), Tree (at most"
        " 375), NVLSTree (at most 375)"
    )


def test_eight_h100_all_gather_at_360_5_of_450(system: System) -> None:
    by_id = judged(run([(4 * G, 356.9), (8 * G, 360.47)], collective="all_gather"), system())
    assert "80 % of the wire's 450" in by_id["bandwidth"].message
    assert "97 % of the 370.8 that NCCL plans with" in by_id["bandwidth"].message
    assert "algorithm" not in by_id


def test_half_the_bandwidth_is_a_warning_with_a_fix(system: System) -> None:
    by_id = judged(run([(4 * G, 215.0), (16 * G, 216.0)], hosts=2), system(2))
    assert (
        by_id["bandwidth"].verdict is Verdict.WARN
        and "58 % of the 370.8 that NCCL plans with" in by_id["bandwidth"].message
    )
    assert "NCCL_DEBUG=INFO" in by_id["bandwidth"].fix


def test_a_sweep_that_ends_while_busbw_rises_gets_no_verdict(system: System) -> None:
    by_id = judged(run([(1 * M, 20.0), (2 * M, 37.0), (4 * M, 60.0)]), system())
    assert by_id["bandwidth"].verdict is Verdict.UNKNOWN and by_id["bandwidth"].message.endswith(
        "it is still rising there"
    )
    assert by_id["latency"].message.endswith("busbw is still rising at 4 MiB, the largest size")
    small = judged(run([(4 * M, 60.0)]), system())["bandwidth"]
    assert small.verdict is Verdict.UNKNOWN and small.message.endswith(
        "one small size does not show the bandwidth"
    )


@pytest.mark.parametrize(
    ("busbw", "spread", "sizes", "verdict", "message"),
    [
        (400.0, 0.01, 2, "pass", "reaches 400 GB/s at 64 MiB, 89 % of the 450 of --ideal"),
        (500.0, 0.2, 2, "pass", "reaches 500 GB/s at 64 MiB (416.7 to 625), 111 % of"),
        (400.0, 0.2, 2, "unknown", "its interval includes the 360 that it must reach"),
        (200.0, 0.2, 2, "unknown", "(not known within a factor of 10), 200 % of"),
        (200.0, 0.2, 1, "warn", "reaches 200 GB/s at 64 MiB (166.7 to 250), 44 % of"),
        (400.0, None, 1, "unknown", "too few samples (9) for an interval"),
    ],
)
def test_the_interval_of_the_peak_is_judged(
    system: System, busbw: float, spread: float | None, sizes: int, verdict: str, message: str
) -> None:
    """Of two sizes the larger one is faster in its few samples, of which nothing is sure."""
    result = run([(64 * M, busbw), (128 * M, 900.0)])
    result.spec = msgspec.structs.replace(result.spec, sampling=Sampling(precision=0.01))
    result.ideal = parse_ideal("450GB/s")
    for row, width in zip(result.rows, (spread, 100.0 if spread else None), strict=True):
        cell = row.out_of_place
        assert cell is not None
        cell.stopped, cell.n = "ok" if width == 0.01 else "budget", 9
        if width:
            cell.low_s, cell.high_s = cell.time_s * max(0.0, 1 - width), cell.time_s * (1 + width)
    del result.rows[sizes:]
    by_id = judged(result, system())
    assert by_id["bandwidth"].verdict.value == verdict
    assert message in by_id["bandwidth"].message
    assert not {"above_bounds", "latency", "dip"} & set(by_id)


@pytest.mark.parametrize(("busbw", "verdict"), [(90.0, "warn"), (400.0, "pass")])
def test_a_sweep_of_one_large_size_is_judged(system: System, busbw: float, verdict: str) -> None:
    result = run([(64 * M, busbw)])
    result.ideal = parse_ideal("450GB/s")
    bandwidth = judged(result, system())["bandwidth"]
    assert bandwidth.verdict.value == verdict and "rising" not in bandwidth.message
    assert ("measure larger sizes" in bandwidth.fix) is (verdict == "warn")


def in_lab(curve: Sequence[tuple[int, float]]) -> Result:
    """A run over two hosts of a lab with 1 Gbit/s."""
    result = run(curve, hosts=2, per_host=1, cpu=True)
    link = "the lab's rate, 1 x 0.125 GB/s"
    result.ideal = Ideal(0.125e9, "endpoint-optimal", link, "each byte enters once")
    return result


def test_in_a_lab_sizes_that_pass_in_a_burst_are_not_judged(system: System) -> None:
    small = [(4 * K, 0.14), (16 * K, 0.55), (256 * K, 0.07)]
    slow = judged(in_lab([*small, (1 * M, 0.06), (4 * M, 0.06)]), system(2))["bandwidth"]
    assert slow.verdict is Verdict.WARN and "0.06 GB/s at 1 MiB, 48 % of" in slow.message
    fast = judged(in_lab([*small, (1 * M, 0.12), (4 * M, 0.12)]), system(2))["bandwidth"]
    assert fast.verdict is Verdict.PASS and "0.12 GB/s at 1 MiB, 96 % of" in fast.message
    within = judged(in_lab(small), system(2))["bandwidth"]
    assert within.verdict is Verdict.UNKNOWN and "bursts of 256 KiB" in within.message
    assert within.fix == "measure larger sizes with -e"


def _settle(cell: Cell, settled: bool) -> None:
    """Give a cell a narrow interval, or two modes and none."""
    cell.stopped = "ok" if settled else "unstable"
    if settled:
        cell.low_s, cell.high_s = 0.999 * cell.time_s, 1.001 * cell.time_s


def test_where_larger_sizes_are_imprecise_the_fix_is_more_time(system: System) -> None:
    result = run([(1 * M, 20.0), (2 * M, 37.0), (4 * M, 60.0), (8 * M, 61.0)])
    result.spec = SweepSpec(collective="all_reduce", sampling=Sampling())
    for row in result.rows:
        _settle(row.out_of_place, row.size_bytes < 8 * M)
    by_id = judged(result, system())
    assert by_id["bandwidth"].fix.startswith("allow more time with --max-time")
    assert by_id["latency"].message.endswith(
        "; busbw rises up to 4 MiB; larger sizes are less precise than requested"
    )
    result = in_lab([(64 * K, 0.5), (4 * M, 0.12)])
    result.spec = SweepSpec(collective="all_reduce", sampling=Sampling())
    for row in result.rows:
        _settle(row.out_of_place, row.size_bytes < M)
    assert judged(result, system(2))["bandwidth"].fix.startswith("allow more time")


def test_a_simulation_without_an_ideal_does_not_speak_of_cpus(system: System) -> None:
    result = run([(4 * G, 3.1)], cpu=True)
    result.library = EngineLibrary("sim")
    assert judged(result, system())["bandwidth"].message.endswith("simulated GPUs have no links")


@pytest.mark.parametrize(
    ("hardware", "kind", "reason"),
    [
        (
            {"nic_gb": None},
            {"hosts": 2},
            "the rate of mlx5_0 on host h0 is unknown: its rate could not be read",
        ),
        ({"gpus": 0}, {}, "no GPU of host h0 could be read: it has none"),
    ],
)
def test_without_an_ideal_the_reason_and_the_option_are_named(
    system: System, hardware: dict[str, object], kind: dict[str, int], reason: str
) -> None:
    by_id = judged(run([(4 * G, 3.1)], **kind), system(kind.get("hosts", 1), **hardware))
    assert by_id["bandwidth"] == RunFinding(
        "bandwidth",
        Verdict.UNKNOWN,
        f"no ideal, so busbw (3.1 GB/s at 4 GiB) cannot be judged: {reason}",
        fix="set the expected busbw, like --ideal 450GB/s",
    )


def test_cpus_are_not_judged(system: System) -> None:
    by_id = judged(run([(4 * G, 3.1)], hosts=1, cpu=True), system(1))
    assert by_id["bandwidth"] == RunFinding(
        "bandwidth",
        Verdict.SKIP,
        "busbw reaches 3.1 GB/s at 4 GiB; nothing is expected of CPUs, so it is not judged",
        fix="run again, and compare: busbw compare -2 -1",
    )


def test_a_host_whose_hardware_was_not_read_is_named(system: System) -> None:
    assert judged(run([(4 * G, 300.0)], hosts=2), system(1))["bandwidth"].message.endswith(
        "the hardware of host h1 was not read"
    )


@pytest.mark.parametrize(("busbw", "verdict"), [(400.0, "pass"), (360.0, "pass"), (300.0, "warn")])
def test_a_given_ideal_replaces_the_computed_one(
    system: System, busbw: float, verdict: str
) -> None:
    result = run([(4 * G, busbw - 1), (8 * G, busbw)])
    result.ideal = parse_ideal("450GB/s")
    by_id = judged(result, system())
    assert (
        by_id["bandwidth"].message
        == f"busbw reaches {busbw:.4g} GB/s at 8 GiB, {busbw / 4.5:.0f} % of the 450 of --ideal"
    )
    assert by_id["bandwidth"].verdict.value == verdict


def test_hardware_not_in_the_table_is_judged_by_the_wire(system: System) -> None:
    new = {"name": "NVIDIA R200", "links": 36, "link_gb": 50, "sm": 107}
    by_id = judged(
        run([(4 * G, 1300.0), (8 * G, 1300.0)], environment={"NCCL_NVLS_ENABLE": "0"}),
        system(**new),
    )
    assert by_id["bandwidth"].verdict is Verdict.PASS and by_id["bandwidth"].evidence.endswith(
        "warns below 70 % of the wire"
    )


def test_wrong_data_names_the_first_wrong_element(system: System) -> None:
    result = run([(8 * M, 200.0), (16 * M, 300.0)])
    bad = result.rows[1].out_of_place
    assert bad is not None
    bad.wrong, result.out_of_bounds = 12, 1
    bad.mismatches = [Mismatch(5, 0, "1", "2", 4), Mismatch(3, 1024, "7", "9", 8)]
    data = judged(result, system())["data"]
    assert data.verdict is Verdict.FAIL and data.evidence == "1 of 2 checks failed, on ranks 3, 5"
    assert (
        data.message
        == "wrong data: 12 elements at 16 MiB float sum out of place, first on rank 3 at element"
        " 1024: expected 7, got 9"
    )
    assert findings(result, system())[0] is not None and findings(result, system())[0].id == "data"


def test_wrong_data_counted_without_detail_still_fails(system: System) -> None:
    result = run([(8 * M, 200.0)])
    result.out_of_bounds = 3
    assert judged(result, system())["data"].verdict is Verdict.FAIL


def test_unchecked_data_is_not_called_right(system: System) -> None:
    result = run([(8 * M, 200.0)])
    assert result.rows[0].out_of_place is not None
    result.rows[0].out_of_place.wrong = None
    assert judged(result, system())["data"].verdict is Verdict.SKIP


def test_a_dip_is_the_worst_size_below_both_neighbours(system: System) -> None:
    curve = [
        (1 * M, 40.0),
        (2 * M, 25.0),
        (4 * M, 80.0),
        (8 * M, 50.0),
        (16 * M, 200.0),
        (32 * M, 160.0),
        (64 * M, 300.0),
    ]
    dip = judged(run(curve), system())["dip"]
    assert (
        dip.verdict is Verdict.WARN
        and dip.message
        == "busbw of float dips to 25 GB/s at 2 MiB, 38 % below both neighbors; 1 other dip"
    )
    assert "noise" in dip.fix


def test_a_dip_of_one_placement_alone_is_noise(system: System) -> None:
    result = run([(8 * M, 200.0), (16 * M, 100.0), (32 * M, 220.0)])
    for row, busbw in zip(result.rows, (200e9, 205e9, 220e9), strict=True):
        assert row.out_of_place is not None
        row.in_place = msgspec.structs.replace(row.out_of_place, busbw=busbw)
    assert "dip" not in judged(result, system())
    in_place = result.rows[1].in_place
    assert in_place is not None
    in_place.busbw = 110e9
    assert judged(result, system())["dip"].message.startswith(
        "busbw of float dips to 100 GB/s at 16 MiB, 50 % below both neighbors"
    )


def test_one_rank_is_explained_and_not_judged(system: System) -> None:
    by_id = judged(run([(8, 0.0), (1 * G, 0.0)], per_host=1), system())
    assert by_id["one_rank"].message == "busbw is 0 with one rank: no data crosses a link"
    assert "bandwidth" not in by_id and by_id["one_rank"].verdict is Verdict.SKIP
    copied = judged(run([(1 * G, 1500.0)], per_host=1, collective="broadcast"), system())
    assert (
        copied["one_rank"].message
        == "busbw is that of a copy within the GPU with one rank: no data crosses a link"
    )


def test_empty_rows_name_the_smallest_size_that_moves_data(system: System) -> None:
    result = run([(0, 0.0), (0, 0.0), (1 * G, 350.0), (2 * G, 352.0)], collective="all_gather")
    by_id = judged(result, system())
    assert by_id["empty_rows"].message == "2 rows moved 0 bytes: 8 ranks need 128 B, 16 B each"
    assert by_id["empty_rows"].fix == "start at -b 128; rows of 0 bytes count in the average"
    reduced = judged(run([(0, 0.0), (1 * G, 350.0)], collective="all_reduce"), system())
    assert reduced["empty_rows"].message == "1 row moved 0 bytes: an element has 4 B"


def test_memory_that_cut_the_sweep_short(system: System) -> None:
    result = msgspec.structs.replace(run([(1 * G, 350.0), (2 * G, 352.0)]), reduced_max_bytes=2 * G)
    assert (
        judged(result, system())["memory"].message
        == "memory limits the sweep to 2 GiB; requested was 8 GiB"
    )


def test_a_run_without_rows_has_no_findings(system: System) -> None:
    assert findings(run([]), system()) == []
