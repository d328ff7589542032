"""Predictions against recorded measurements, with and without curves and a calibration."""

from dataclasses import replace
from pathlib import Path

import pytest

from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.model.estimate import EstimateInputs, by_links, estimate
from busbw.model.forecast import MeasuredCurves, forecast, job_of
from busbw.model.measured_system import of_result, shape
from busbw.model.nccl.choice import allowed
from busbw.model.nccl.constants import of_number, release
from busbw.model.predict import predict
from busbw.model.reference.curves import Reference, ReferenceCurve, built_in
from busbw.model.reference.expected import ExpectedBasis, modelled_s
from busbw.model.spine import Spine
from busbw.model.systems import System, parse_system
from busbw.report import read

AR = BY_NAME["all_reduce"]
GIB, MIB = 1 << 30, 1 << 20
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def load(path: Path) -> Result:
    result = read.read(path.read_bytes(), path.name)
    assert isinstance(result, Result)
    return result


def off_at(
    result: Result, setting: EstimateInputs, least: int, evidence: MeasuredCurves | None = None
) -> dict[int, tuple[float, bool]]:
    """Measured out-of-place busbw relative to the expected, by size, and whether it is in its
    range.
    """
    hosts, per_host = shape(result)
    off = {}
    for row in result.rows:
        if row.size_bytes >= least and row.out_of_place:
            expected = forecast(setting, AR, hosts, per_host, row.size_bytes, evidence)
            assert expected is not None
            measured = row.out_of_place.busbw
            inside = expected.low <= measured <= expected.high
            off[row.size_bytes] = (measured / expected.busbw - 1, inside)
    return off


@pytest.mark.parametrize(
    ("file", "system", "nccl"),
    [("old/all_reduce_2x8_h100.txt", "h100x8", "2.21.5"), ("h20_ib/ib.txt", "h20x8", "2.27.7")],
)
def test_two_hosts_that_the_table_does_not_have(
    recorded: Path, file: str, system: str, nccl: str
) -> None:
    result = load(recorded / "nccl_tests" / file)
    off = off_at(result, EstimateInputs(parse_system(system), release(nccl)), MIB)
    assert all(inside for _, inside in off.values())
    assert max(abs(share) for size, (share, _) in off.items() if size >= 4 * GIB) < 0.08


def test_two_h200_are_expected_from_the_curves_of_two_h100() -> None:
    result, setting = two_h200("run_1.json")
    others = tuple(curve for curve in built_in().published if curve.gpu != "h200")
    evidence = MeasuredCurves(Reference(others, {}))
    off = off_at(result, setting, MIB, evidence)
    assert len(off) == 14
    assert sum(inside for _, inside in off.values()) >= 13  # a range holds 90 %
    assert max(abs(share) for size, (share, _) in off.items() if size >= 64 * MIB) < 0.08
    expected = forecast(setting, AR, 1, 2, 64 * MIB, evidence)
    assert expected is not None and expected.basis == ExpectedBasis.SIMILAR
    assert expected.runs == ("aiconfigurator h100 NCCL 2.27.3", "aiconfigurator h100 NCCL 2.29.2")


def two_h200(name: str) -> tuple[Result, EstimateInputs]:
    result = load(BENCHMARKS / "all_reduce_2xh200_202611" / name)
    system = of_result(result)
    assert isinstance(system, System)
    return result, EstimateInputs(system, of_number(result.library.nccl))


def curve_on(hosts: int, slower: float) -> ReferenceCurve:
    """A run on so many hosts of 8 H100 that takes `slower` times as long as the model expects."""
    setting = EstimateInputs(parse_system("h100x8"))
    sizes = (MIB, 16 * MIB, 256 * MIB, 16 * GIB)
    times = []
    for size in sizes:
        chosen = by_links(setting, "all_reduce", hosts, 8, size)
        assert chosen is not None
        job = job_of(setting, "all_reduce", hosts, 8)
        times.append(slower * modelled_s(job, chosen) * 1e6)
    return ReferenceCurve(
        source="own",
        run="run.txt",
        gpu="h100",
        per_host=8,
        hosts=hosts,
        collective="all_reduce",
        sizes=sizes,
        times_us=tuple(times),
    )


def test_a_calibration_is_by_size_and_carries_to_more_hosts() -> None:
    setting = EstimateInputs(parse_system("h100x8"))
    evidence = MeasuredCurves(Reference((), {}), (curve_on(2, 1.3),))
    measured = forecast(setting, AR, 2, 8, 256 * MIB, evidence)
    more = forecast(setting, AR, 8, 8, 256 * MIB, evidence)
    plain = forecast(setting, AR, 8, 8, 256 * MIB, MeasuredCurves(Reference((), {})))
    assert measured and more and plain
    assert measured.basis == ExpectedBasis.CALIBRATION
    assert (measured.low, measured.high) == pytest.approx(
        (0.9 * measured.busbw, 1.1 * measured.busbw)
    )
    assert more.time_s == pytest.approx(1.3 * plain.time_s, rel=0.01)
    assert more.basis == ExpectedBasis.MODEL


def test_a_slow_calibration_of_small_sizes_has_a_latency_of_its_own() -> None:
    setting = EstimateInputs(parse_system("h100x8"))
    slow = ReferenceCurve(
        source="own",
        run="run.txt",
        gpu="h100",
        per_host=8,
        collective="all_reduce",
        sizes=(8192, 32768, 524288),
        times_us=(38.1, 40.5, 49.9),
    )
    evidence = MeasuredCurves(Reference((), {}), (slow,))
    for size in slow.sizes:
        expected = forecast(setting, AR, 1, 8, size, evidence)
        assert expected is not None and expected.regime == "latency"
    large = forecast(
        setting, AR, 2, 8, 256 * MIB, MeasuredCurves(Reference((), {}), (curve_on(2, 1),))
    )
    assert large is not None and large.regime == "bandwidth"


def test_the_crossing_is_where_both_parts_are_equal() -> None:
    (crossing,) = predict(EstimateInputs(parse_system("h100x8")), AR, [2], 8, [GIB], "").crossings
    assert crossing.size_bytes is not None
    below, above = (
        forecast(EstimateInputs(parse_system("h100x8")), AR, 2, 8, size)
        for size in (crossing.size_bytes // 2, crossing.size_bytes * 2)
    )
    assert below is not None
    assert above is not None
    assert (below.regime, above.regime) == ("latency", "bandwidth")


def test_lost_rails_and_oversubscription_slow_down_only_traffic_between_hosts() -> None:
    system = parse_system("h100x8")

    def time_s(hosts: int, over: float = 1.0, lost: int = 0) -> float:
        return (
            predict(
                EstimateInputs(system, spine=Spine(over)),
                AR,
                [hosts],
                8,
                [16 * GIB],
                "",
                rails_lost=lost,
            )
            .rows[0]
            .time_s
        )

    assert time_s(1, over=4, lost=2) == time_s(1)
    assert time_s(16, over=2) > 1.5 * time_s(16)
    assert time_s(16, lost=4) > 1.5 * time_s(16)
    with pytest.raises(UsageError, match="--rails-lost 8"):
        time_s(2, lost=8)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_collective_up_to_100000_gpus(name: str) -> None:
    for hosts in (1, 2, 4096, 12500):
        predicted = forecast(EstimateInputs(parse_system("h100x8")), BY_NAME[name], hosts, 8, GIB)
        if name == "hypercube" and hosts == 12500:
            assert predicted is None  # not a power of two
            continue
        assert predicted is not None
        assert 0 < predicted.latency_s < predicted.time_s
        assert predicted.extrapolated == (hosts > 248)
        assert predicted.low < predicted.busbw <= predicted.high


def test_one_gpu_per_host_and_impossible_placements() -> None:
    predicted = forecast(EstimateInputs(parse_system("h100x8")), BY_NAME["all_gather"], 16, 1, GIB)
    assert predicted is not None
    assert predicted.busbw < 50e9
    with pytest.raises(UsageError, match="no data crosses a link"):
        predict(EstimateInputs(parse_system("h100x8")), AR, [1], 1, [GIB], "")
    with pytest.raises(UsageError, match="--gpus 9"):
        predict(EstimateInputs(parse_system("h100x8")), AR, [1], 9, [GIB], "")


@pytest.mark.parametrize(
    ("collective", "dtype", "op", "algorithm"),
    [
        ("all_reduce", "float", "sum", "NVLS"),
        ("all_reduce", "bfloat16", "max", "NVLS"),
        ("all_reduce", "float", "max", "Ring"),
        ("all_reduce", "float", "avg", "Ring"),
        ("all_reduce", "int8", "sum", "Ring"),
        ("all_reduce", "f8e4m3", "sum", "Ring"),
        ("reduce_scatter", "uint8", "sum", "Ring"),
    ],
)
def test_nvls_runs_on_the_types_that_switches_reduce(
    collective: str, dtype: str, op: str, algorithm: str
) -> None:
    setting = EstimateInputs(parse_system("h100x8"), dtype=dtype, op=op)
    expected = estimate(setting, collective, 1, 8, GIB)
    assert expected is not None and expected.algorithm == algorithm
    prediction = predict(setting, BY_NAME[collective], [1], 8, [GIB], "described")
    assert prediction.bounds.chosen == algorithm
    assert any("NVLS does not reduce" in note for note in prediction.notes) == (algorithm == "Ring")


def test_a_ring_of_fp8_on_more_than_eight_ranks_is_the_last_that_nccl_takes() -> None:
    for dtype, hosts, algorithm in (("f8e4m3", 2, "Tree"), ("int8", 2, "Ring")):
        setting = EstimateInputs(parse_system("h100x8"), dtype=dtype)
        expected = estimate(setting, "all_reduce", hosts, 8, GIB)
        assert expected is not None and expected.algorithm == algorithm
    may = allowed({"NCCL_ALGO": "Ring"}, "all_reduce")
    ring = EstimateInputs(parse_system("h100x8"), may=may, dtype="f8e4m3")
    expected = estimate(ring, "all_reduce", 2, 8, GIB)
    assert expected is not None and expected.algorithm == "Ring"


def busbw_of(setting: EstimateInputs, hosts: int, size: int = 16 * GIB) -> float:
    (row,) = predict(setting, AR, [hosts], 8, [size], "described").rows
    return row.busbw


def test_with_sharp_the_network_reduces_whatever_the_number_of_hosts() -> None:
    """8 hosts of H100 reached 450 GB/s (Azure)."""
    plain = EstimateInputs(parse_system("h100x8"))
    sharp = replace(plain, system=replace(plain.system, collnet=True))
    assert busbw_of(plain, 8) < 350e9 < 400e9 < busbw_of(sharp, 8) < 480e9
    assert busbw_of(sharp, 64) == pytest.approx(busbw_of(sharp, 8), rel=0.05)
    predicted = predict(sharp, AR, [8], 8, [GIB], "described")
    assert predicted.bounds.chosen == "NVLS"
    assert not any("CollNet" in note for note in predicted.notes)
    a100 = EstimateInputs(replace(parse_system("a100x8"), collnet=True))
    described = predict(a100, AR, [8], 8, [GIB], "described").described
    assert any("no times of CollNet" in note for note in described.notes)


@pytest.mark.parametrize(("system", "measured"), [("gb200x4", 234e9), ("gb200x8", 486e9)])
def test_a_tree_over_hosts_reaches_nearly_its_bound(system: str, measured: float) -> None:
    """NVIDIA/nccl issue 1801, without NVLS."""
    described = parse_system(system)
    setting = EstimateInputs(described, may=allowed({"NCCL_ALGO": "Tree"}, "all_reduce"))
    (row,) = predict(setting, AR, [3], described.gpus, [16 * GIB], "described").rows
    assert row.busbw == pytest.approx(measured, rel=0.05)


def test_fewer_channels_take_longer() -> None:
    plain = EstimateInputs(parse_system("h100x8"))
    rates = [busbw_of(replace(plain, ctas=ctas), 1) for ctas in (2, 8, 16, 64)]
    assert rates[1] == pytest.approx(rates[3] / 2, rel=0.05)
    assert rates[0] == pytest.approx(rates[3] / 8, rel=0.05)
    assert rates[2] == rates[3] == busbw_of(plain, 1)


def test_a_type_that_nvls_does_not_reduce_overrules_nccl_algo() -> None:
    setting = EstimateInputs(
        parse_system("h100x8"), may=allowed({"NCCL_ALGO": "NVLS"}, "all_reduce"), dtype="int8"
    )
    expected = estimate(setting, "all_reduce", 1, 8, GIB)
    assert expected is not None and expected.algorithm == "Ring"
