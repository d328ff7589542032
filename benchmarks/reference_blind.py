"""Results of this project compared with what the table of curves expects without them.

`python benchmarks/reference_blind.py benchmarks/reference_4xh200_202611` measures nothing: it
predicts every size of every result in a folder, without the curves that come from that folder.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from busbw.core.result import Result
from busbw.core.sizes import format_size
from busbw.measure import alltoallv_traffic
from busbw.model.estimate import EstimateInputs
from busbw.model.forecast import MeasuredCurves, forecast
from busbw.model.measured_system import of_result, shape
from busbw.model.nccl.constants import of_number
from busbw.model.reference.curves import Reference, built_in
from busbw.model.systems import System
from busbw.report import read

SIZES = ((1 << 26, "from 64 MiB on"), (1 << 20, "1 to 64 MiB"), (0, "below 1 MiB"))


@dataclass(frozen=True)
class Point:
    """Measured busbw relative to the expected, and whether it is in the range."""

    size_bytes: int
    basis: str
    ratio: float
    inside: bool


def points(result: Result, evidence: MeasuredCurves) -> Iterator[Point]:
    """Every size of a result, out of place."""
    system = of_result(result)
    assert isinstance(system, System)
    nvls = system.nvls and result.environment.get("NCCL_NVLS_ENABLE") != "0"
    traffic = alltoallv_traffic.of_result(result, shape(result)[1])
    setting = EstimateInputs(
        replace(system, nvls=nvls), of_number(result.library.nccl), traffic=traffic
    )
    for row in result.rows:
        expected = forecast(setting, result.spec.row, *shape(result), row.size_bytes, evidence)
        if row.out_of_place and expected:
            measured = row.out_of_place.busbw
            inside = expected.low <= measured <= expected.high
            yield Point(row.size_bytes, expected.basis, measured / expected.busbw, inside)


def main(folder: Path) -> None:
    """Print the ratios of every result, and the errors by size and basis."""
    rest = [curve for curve in built_in().published if curve.source != folder.name]
    evidence = MeasuredCurves(Reference(tuple(rest), {}))
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        result = read.read(path.read_bytes(), path.name)
        assert isinstance(result, Result)
        found = list(points(result, evidence))
        shown = [
            f"{format_size(p.size_bytes)} {p.ratio:.2f}{'' if p.inside else ' !'}" for p in found
        ]
        print(f"{path.stem}: {', '.join(shown)}")
        for point in found:
            where = next(name for start, name in SIZES if point.size_bytes >= start)
            groups[point.basis, where].append(point)
    print()
    for (basis, where), same in sorted(groups.items()):
        off = sorted(abs(1 / point.ratio - 1) for point in same)
        inside = sum(point.inside for point in same) / len(same)
        above = sum(point.ratio > 1 and not point.inside for point in same)
        print(
            f"{basis}, {where}: {len(same)} sizes, median error {100 * median(off):.1f} %, p90"
            f" {100 * off[int(0.9 * (len(off) - 1))]:.1f} %, {100 * inside:.0f} % inside,"
            f" {above} faster than the range"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
