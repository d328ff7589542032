"""The error of NCCL's cost model, as busbw computes it, compared with NCCL's logs and with
measurements: one line per case.

`python benchmarks/model_errors.py` computes it from the records in tests/recorded and benchmarks
and measures nothing. The README of model_202611 explains the cases.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from busbw.core.collectives import BY_NAME, collective
from busbw.core.pattern import PROTOCOLS
from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.model.estimate import EstimateInputs, estimate
from busbw.model.forecast import MeasuredCurves, forecast
from busbw.model.measured_system import of_result
from busbw.model.nccl.choice import Model, allowed, choices, parts
from busbw.model.nccl.constants import fitted_release, of_number, release
from busbw.model.reference.curves import Reference, ReferenceCurve
from busbw.model.systems import System, parse_system
from busbw.report import read

ROOT = Path(__file__).resolve().parents[1]
RECORDED, BENCHMARKS = ROOT / "tests" / "recorded", ROOT / "benchmarks"
MIB, GIB = 1 << 20, 1 << 30

PUBLISHED = (
    ("8 H100, NVLS, GTC 2024 S62129", "h100x8", 1, "NVLS", 16 * GIB, 480.0),
    ("8 H100, Ring, nccl-tests 309", "h100x8", 1, "Ring", 16 * GIB, 368.8),
    ("8 H800, NVLS, nccl 1374", "h800x8", 1, "NVLS", 16 * GIB, 215.0),
    ("5 H100, NVLS, nccl 1455", "h100x5", 1, "NVLS", 16 * GIB, 420.0),
    ("6 H100, NVLS, nccl 1455", "h100x6", 1, "NVLS", 16 * GIB, 440.0),
    ("7 H100, NVLS, nccl 1455", "h100x7", 1, "NVLS", 16 * GIB, 460.0),
    ("8 B200, NVLS, field", "b200x8", 1, "NVLS", 16 * GIB, 840.0),
    ("2 x 8 A100, Ring, nccl 812", "a100x8", 2, "Ring", 16 * GIB, 192.0),
    ("2 x 8 H100, NVLSTree, nccl 1221", "h100x8", 2, "NVLSTree", 16 * GIB, 430.0),
    ("4 x 8 H100, nccl 1221", "h100x8", 4, "NVLSTree", 16 * GIB, 320.0),
    ("248 x 8 H200, 512 MiB, nccl-tests 283", "h200x8", 248, "NVLSTree", 512 * MIB, 350.0),
)


def load(path: Path) -> Result:
    """The sweep in a file."""
    found = read.read(path.read_bytes(), path.name)
    assert isinstance(found, Result)
    return found


def rate(model: Model, size: int, algorithm: str, name: str = "all_reduce") -> float:
    """busbw in GB/s that the model gives an algorithm with its faster protocol."""
    timed = [
        found for protocol in PROTOCOLS if (found := parts(model, name, size, algorithm, protocol))
    ]
    return (
        float(BY_NAME[name].bus_factor(model.ranks)) * size / min(one.time_s for one in timed) / 1e9
    )


def logged() -> Iterator[str]:
    """The times that NCCL logged on 8 H100."""
    with (RECORDED / "nccl_model" / "aibooster_pattern.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for version in ("2.20", "2.22"):
        model, off = parse_system("h100x8").model(release(version), 1, 8), []
        for row in rows:
            best = choices(model, collective(row["routine"]).name, int(row["TOTALBYTES"]))[0]
            off.append(
                abs(best.parts.time_s * 1e6 - float(row["TIME_FOR_EACH_NCCL_COMM_CALL_MICROSEC"]))
            )
        exact = sum(one <= 1e-3 for one in off)
        what = f"8 H100, times of AIBooster's pattern.csv, constants of {version}"
        yield f"{what}: {exact} of {len(rows)} within 0.001 us, largest {max(off):.6f} us"


def two_hosts(name: str, file: str, system: System, version: str) -> Iterator[str]:
    """all_reduce over two hosts: measured busbw relative to the latest constants, and to those
    of the release that ran.
    """
    setting = EstimateInputs(system, release(version))
    for row in load(RECORDED / "nccl_tests" / file).rows:
        predicted = estimate(setting, "all_reduce", 2, 8, row.size_bytes)
        if predicted is None or row.out_of_place is None or row.size_bytes < MIB:
            continue
        own = choices(system.model(setting.release, 2, 8), "all_reduce", row.size_bytes)[0]
        latest, by_own = (
            found.parts.time_s / row.out_of_place.time_s - 1 for found in (predicted, own)
        )
        yield (
            f"{name} {format_size(row.size_bytes):>8} {predicted.algorithm:8} measured"
            f" {row.out_of_place.busbw / 1e9:6.1f} GB/s, {100 * latest:+6.1f} % of the model,"
            f" {100 * by_own:+6.1f} % of NCCL {version}'s own"
        )


def two_h200() -> Iterator[str]:
    """all_reduce on two H200."""
    for file in [f"{kind}_{number}.json" for kind in ("run", "compat") for number in (1, 2, 3)]:
        result = load(BENCHMARKS / "all_reduce_2xh200_202611" / file)
        off = []
        for row in result.rows:
            predicted = estimate(_setting(result), "all_reduce", 1, 2, row.size_bytes)
            if row.size_bytes >= MIB and row.out_of_place and predicted:
                off.append(predicted.parts.time_s / row.out_of_place.time_s - 1)
        yield (
            f"2 H200 {file:13} 1 MiB to 8 GiB: {100 * min(off):+.1f} to {100 * max(off):+.1f} % of"
            " the model"
        )


def other_collectives() -> Iterator[str]:
    """Other collectives on two H200 at 1 GiB."""
    for name in ("all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv"):
        result = load(BENCHMARKS / "all_reduce_2xh200_202611" / "collectives" / f"{name}.json")
        row = next(row for row in result.rows if row.size_bytes == GIB)
        predicted = estimate(_setting(result), name, 1, 2, GIB)
        if predicted and row.out_of_place:
            off = predicted.parts.time_s / row.out_of_place.time_s - 1
            measured = (
                f"measured {row.out_of_place.busbw / 1e9:6.1f} GB/s, {100 * off:+.1f} % of the"
                " model"
            )
            yield f"2 H200 {name:14} 1 GiB {predicted.algorithm:14} {measured}"


def _setting(result: Result) -> EstimateInputs:
    system = of_result(result)
    # of the machine; nccl-tests' JSON hides its value
    environment = {**result.environment, "NCCL_NVLS_ENABLE": "0"}
    assert isinstance(system, System)
    return EstimateInputs(
        system, of_number(result.library.nccl or 22809), allowed(environment, result.spec.row.name)
    )


def published() -> Iterator[str]:
    """Figures that others published."""
    for what, word, hosts, algorithm, size, value in PUBLISHED:
        system = parse_system(word)
        found = rate(system.model(fitted_release(), hosts, system.gpus), size, algorithm)
        yield (
            f"{what:38} published {value:6.1f}, model {found:6.1f} GB/s: measured"
            f" {100 * (value / found - 1):+6.1f} % of the model"
        )


def rings() -> Iterator[str]:
    """SimAI's table of rings over 1 to 128 hosts, which it uses for all_gather and reduce_scatter
    (calbusbw.cc, cal_ratio), by how much of the time latency takes in the model.
    """
    groups: dict[tuple[str, str], list[float]] = {}
    with (RECORDED / "nccl_model" / "simai_nic_ratio.csv").open() as lines:
        for row in csv.DictReader(lines):
            size = int(row.pop("bytes"))
            for hosts, share in ((int(key), float(value)) for key, value in row.items()):
                model = parse_system("h100x8").model(fitted_release(), hosts, 8)
                timed = [
                    found
                    for protocol in ("LL128", "Simple")
                    if (found := parts(model, "all_gather", size, "Ring", protocol))
                ]
                best = min(timed, key=lambda one: one.time_s)
                expected = float(BY_NAME["all_gather"].bus_factor(model.ranks)) * size / best.time_s
                waits = best.latency_s / best.time_s
                group = (
                    "below 30 %" if waits < 0.3 else "30 to 50 %" if waits <= 0.5 else "above 50 %"
                )
                where = "1 and 2 hosts" if hosts <= 2 else "4 to 128 hosts"
                groups.setdefault((where, group), []).append(
                    share * (450e9 if hosts == 1 else 388e9) / expected - 1
                )
    for (where, group), off in sorted(groups.items()):
        spread = (
            f"{100 * min(off):+.0f} to {100 * max(off):+.0f} %, median {100 * median(off):+.0f} %"
        )
        yield f"rings, {where}, latency {group}: {len(off)} figures, {spread}"


def calibrated() -> Iterator[str]:
    """SimAI's rings on more hosts, calibrated by those on two: the median error in time."""
    name, ring_of = "all_gather", {}
    with (RECORDED / "nccl_model" / "simai_nic_ratio.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for hosts in (2, 4, 8, 16, 32, 64, 128):
        factor = float(BY_NAME[name].bus_factor(8 * hosts))
        points = [(int(row["bytes"]), float(row[str(hosts)]) * 388e9) for row in rows]
        ring_of[hosts] = ReferenceCurve(
            source="SimAI",
            run=f"{hosts} hosts",
            gpu="h100",
            per_host=8,
            hosts=hosts,
            collective=name,
            sizes=tuple(size for size, _ in points),
            times_us=tuple(size * factor / busbw * 1e6 for size, busbw in points),
        )
    for hosts in (4, 8, 16, 32, 64, 128):
        plain = _median_error(ring_of[hosts], ())
        after = _median_error(ring_of[hosts], (ring_of[2],))
        yield (
            f"{name} in rings on {hosts} x 8, 16 MiB to 16 GiB: median error {100 * plain:.1f} %,"
            f" calibrated on 2 x 8 {100 * after:.1f} %"
        )


def _median_error(curve: ReferenceCurve, calibration: tuple[ReferenceCurve, ...]) -> float:
    setting = EstimateInputs(parse_system("h100x8"))
    evidence = MeasuredCurves(Reference((), {}), calibration)
    off = []
    for size, time_us in zip(curve.sizes, curve.times_us, strict=True):
        expected = forecast(setting, BY_NAME[curve.collective], curve.hosts, 8, size, evidence)
        assert expected is not None
        off.append(abs(expected.time_s * 1e6 / time_us - 1))
    return median(off)


def main() -> None:
    """Print every case."""
    h100, h20 = parse_system("h100x8"), parse_system("h20x8")
    for part in (
        logged(),
        two_hosts("2 x 8 H100", "old/all_reduce_2x8_h100.txt", h100, "2.21.5"),
        two_hosts("2 x 8 H20", "h20_ib/ib.txt", h20, "2.27.7"),
        two_h200(),
        other_collectives(),
        published(),
        rings(),
        calibrated(),
    ):
        for line in part:
            print(line)
        print()


if __name__ == "__main__":
    main()
