"""The statistics are those of nccl-tests' per-iteration report."""

import json
from pathlib import Path

import pytest

from busbw.stats.intervals import summary


def test_the_definitions_by_hand() -> None:
    spread = summary([4.0, 1.0, 2.0, 3.0])
    assert (spread.count, spread.min_s, spread.max_s, spread.mean_s) == (4, 1.0, 4.0, 2.5)
    assert spread.p50_s == 3.0  # the upper median
    assert spread.p95_s == spread.p99_s == 4.0
    assert spread.stdev_s == pytest.approx(1.25**0.5)
    assert spread.cv == pytest.approx(1.25**0.5 / 2.5)


def test_percentiles_are_nearest_rank() -> None:
    spread = summary([float(value) for value in range(1, 201)])
    assert (spread.p95_s, spread.p99_s) == (190.0, 198.0)


@pytest.mark.parametrize(
    "name",
    ["all_reduce_2xH200_sockets_per_iteration", "all_reduce_2xH200_two_processes_per_iteration"],
)
def test_percentiles_equal_those_of_nccl_tests(recorded: Path, name: str) -> None:
    for row in json.loads((recorded / "nccl_tests" / f"{name}.json").read_text())["results"]:
        for key in ("out_of_place_per_iter", "in_place_per_iter"):
            expected, spread = row[key], summary(row[key]["times_us"])
            percentiles = (spread.min_s, spread.max_s, spread.p50_s, spread.p95_s, spread.p99_s)
            assert percentiles == (
                expected["min_us"],
                expected["max_us"],
                expected["p50_us"],
                expected["p95_us"],
                expected["p99_us"],
            )
            assert spread.mean_s == pytest.approx(expected["avg_us"], abs=2e-6)
            assert spread.stdev_s == pytest.approx(expected["stdev_us"], abs=2e-6)
            assert spread.cv * 100 == pytest.approx(expected["cv_pct"], abs=2e-5)
