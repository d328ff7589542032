"""Predictions against recorded measurements, with and without calibration."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busbw.core.collectives import BY_NAME
from busbw.core.errors import UsageError
from busbw.core.result import Result
from busbw.model.estimate import Point, Setting, estimate, factors, fit
from busbw.model.measured_system import of_result, shape
from busbw.model.nccl.choice import Parts, allowed
from busbw.model.nccl.constants import of_number, release
from busbw.model.predict import BANDS, forecast, point, predict
from busbw.model.systems import System, parse_system
from busbw.model.types import Fit
from busbw.report import read

AR = BY_NAME["all_reduce"]
GIB, MIB = 1 << 30, 1 << 20
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def load(path: Path) -> Result:
    result = read.read(path.read_bytes(), path.name)
    assert isinstance(result, Result)
    return result


def errors(result: Result, setting: Setting, least: int) -> dict[int, float]:
    """Measured out-of-place busbw relative to the prediction, by size, with the algorithm that
    was predicted.
    """
    hosts, per_host = shape(result)
    error_of = {}
    for row in result.rows:
        expected = (
            forecast(setting, AR, hosts, per_host, row.size_bytes, {})
            if row.size_bytes >= least
            else None
        )
        if expected and row.out_of_place:
            assert expected.algorithm == "NVLSTree"
            error_of[row.size_bytes] = row.out_of_place.busbw / expected.busbw - 1
    return error_of


def test_two_hosts_of_8_h100(recorded: Path) -> None:
    result = load(recorded / "nccl_tests/old/all_reduce_2x8_h100.txt")
    deviations = errors(result, Setting(parse_system("h100x8"), release("2.21.5")), GIB)
    assert len(deviations) == 5
    assert max(map(abs, deviations.values())) < 0.025


def test_two_hosts_of_8_h20(recorded: Path) -> None:
    result = load(recorded / "nccl_tests/h20_ib/ib.txt")
    deviations = errors(result, Setting(parse_system("h20x8"), release("2.27.7")), GIB)
    assert len(deviations) == 4
    assert max(map(abs, deviations.values())) < 0.06
    relative_errors = errors(result, Setting(parse_system("h20x8"), release("2.27.7")), MIB)
    for size, off in relative_errors.items():
        row = next(row for row in BANDS if size >= row.from_bytes)
        assert abs(off) <= row.plain + 0.01, size


def two_h200(name: str) -> tuple[Result, Setting]:
    result = load(BENCHMARKS / "all_reduce_2xh200_202611" / name)
    system = of_result(result)
    if isinstance(system, str):
        system = parse_system("h200x2")
    assert isinstance(system, System)
    environment = {**result.environment, "NCCL_NVLS_ENABLE": "0"}
    return result, Setting(
        system, of_number(result.library.nccl or 22809), allowed(environment, "all_reduce")
    )


@pytest.mark.parametrize(
    "name", [f"{kind}_{number}.json" for kind in ("run", "compat") for number in (1, 2, 3)]
)
def test_two_h200_after_calibration_on_three_sizes(name: str) -> None:
    result, setting = two_h200(name)
    points = {}
    for row in result.rows:
        if row.size_bytes >= MIB and row.out_of_place:
            time_s = row.out_of_place.time_s
            measured = point(setting, "all_reduce", 1, 2, row.size_bytes, time_s)
            assert measured is not None
            points[row.size_bytes] = measured
    assert len(points) == 14
    fits = fit([points[size] for size in (2 * MIB, 128 * MIB, 8 * GIB)])
    assert list(fits) == [("all_reduce", "Ring", "Simple")]
    for size, measured in points.items():
        predicted = forecast(setting, AR, 1, 2, size, fits)
        assert predicted is not None
        assert predicted.algorithm == "Ring"
        assert measured.time_s == pytest.approx(predicted.time_s, rel=0.10), size
    plain = [
        measured.time_s / predicted.time_s - 1
        for size, measured in points.items()
        if (predicted := forecast(setting, AR, 1, 2, size, {}))
    ]
    assert max(map(abs, plain)) > 0.3  # what the calibration is for


def test_the_largest_job_is_held_out() -> None:
    setting = Setting(parse_system("h100x8"))
    points = []
    for hosts in (2, 4, 8):
        for size in (16 * MIB, GIB, 16 * GIB):
            model = point(setting, "all_reduce", hosts, 8, size, 1.0)
            assert model is not None
            slow = (
                1.2 * model.parts.latency_s + (1.1 if hosts < 8 else 1.21) * model.parts.transfer_s
            )
            points.append(
                Point("all_reduce", model.algorithm, model.protocol, hosts, size, model.parts, slow)
            )
    fitted = fit(points)[("all_reduce", "NVLSTree", "Simple")]
    assert (fitted.points, fitted.hosts, fitted.held_hosts) == (9, 8, 8)
    assert fitted.held_worst == pytest.approx(1 - 1.1 / 1.21, abs=0.01)
    exact = fit([point_ for point_ in points if point_.hosts < 8])[
        ("all_reduce", "NVLSTree", "Simple")
    ]
    assert (exact.latency, exact.transfer, exact.worst) == pytest.approx((1.2, 1.1, 0.0), abs=1e-9)
    beyond = predict(
        setting,
        AR,
        [4, 16],
        8,
        [16 * GIB],
        "",
        fit([point_ for point_ in points if point_.hosts < 8]),
    )
    assert [row.extrapolated for row in beyond.rows] == [False, True]
    assert all(row.calibrated for row in beyond.rows)
    # a calibration says nothing of larger jobs
    assert [row.band for row in beyond.rows] == [0.05, 0.15]
    (small,) = predict(setting, AR, [4], 8, [MIB], "", {}).rows
    assert small.band >= 0.35


positive = st.floats(1e-6, 1.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=12))
def test_factors_are_not_negative_and_never_worse_than_none(
    lines: list[tuple[float, float, float]],
) -> None:
    points = [
        Point("all_reduce", "Ring", "Simple", 1, 8, Parts(latency, transfer), time)
        for latency, transfer, time in lines
    ]
    latency, transfer = factors(points)

    def loss(a: float, b: float) -> float:
        return sum(
            ((a * point_.parts.latency_s + b * point_.parts.transfer_s) / point_.time_s - 1) ** 2
            for point_ in points
        )

    assert latency >= 0
    assert transfer >= 0
    assert loss(latency, transfer) <= loss(1.0, 1.0) + 1e-6 * (1 + loss(1.0, 1.0))


def test_the_crossing_is_where_both_parts_are_equal() -> None:
    (crossing,) = predict(Setting(parse_system("h100x8")), AR, [2], 8, [GIB], "").crossings
    assert crossing.size_bytes is not None
    below, above = (
        forecast(Setting(parse_system("h100x8")), AR, 2, 8, size, {})
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
                Setting(system, oversubscription=over),
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
        predicted = forecast(Setting(parse_system("h100x8")), BY_NAME[name], hosts, 8, GIB, {})
        if name == "hypercube" and hosts == 12500:
            assert predicted is None  # not a power of two
            continue
        assert predicted is not None
        assert 0 < predicted.latency_s < predicted.time_s
        assert predicted.extrapolated == (hosts > 248)


def test_one_gpu_per_host_and_impossible_placements() -> None:
    predicted = forecast(Setting(parse_system("h100x8")), BY_NAME["all_gather"], 16, 1, GIB, {})
    assert predicted is not None
    assert predicted.busbw < 50e9
    with pytest.raises(UsageError, match="no data crosses a link"):
        predict(Setting(parse_system("h100x8")), AR, [1], 1, [GIB], "")
    with pytest.raises(UsageError, match="--gpus 9"):
        predict(Setting(parse_system("h100x8")), AR, [1], 9, [GIB], "")


def test_a_fit_of_one_point_scales_both_parts() -> None:
    (fitted,) = fit([Point("all_reduce", "Ring", "LL", 1, 8, Parts(1e-5, 1e-5), 4e-5)]).values()
    assert fitted == Fit("all_reduce", "Ring", "LL", 2.0, 2.0, 1, 1, 0.0, 8)


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
    setting = Setting(parse_system("h100x8"), dtype=dtype, op=op)
    expected = estimate(setting, collective, 1, 8, GIB)
    assert expected is not None and expected.algorithm == algorithm
    prediction = predict(setting, BY_NAME[collective], [1], 8, [GIB], "described")
    assert prediction.bounds.chosen == algorithm
    assert any("NVLS does not reduce" in note for note in prediction.notes) == (algorithm == "Ring")


def test_a_type_that_nvls_does_not_reduce_overrules_nccl_algo() -> None:
    setting = Setting(
        parse_system("h100x8"), may=allowed({"NCCL_ALGO": "NVLS"}, "all_reduce"), dtype="int8"
    )
    expected = estimate(setting, "all_reduce", 1, 8, GIB)
    assert expected is not None and expected.algorithm == "Ring"
