"""The stated interval on real samples: 200 repeats of six sizes on two H200s, four machines,
recorded under benchmarks/.
"""

import gzip
import json
import math
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from busbw.core.sweep import Sampling
from busbw.stats.sampling import fewest_visits, reported_interval

RECORD = Path(__file__).parents[3] / "benchmarks" / "precise_2xh200_202611"
SAMPLING = Sampling(confidence=0.95)
TICK_NS = 32  # of a GPU's events
FILES = (
    "coverage.json",
    "coverage_drifting.json",
    "coverage_drifting_2.json",
    "coverage_still_2.json.gz",
)

Cells = dict[str, dict[str, list[dict[str, Any]]]]


@cache
def read(name: str) -> Cells:
    data = (RECORD / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


def visits(repeats: list[dict[str, Any]], start: int) -> list[list[float]]:
    """Repeats as far apart as possible, as the visits of a cell: the fewest that have an
    interval at 95 %.
    """
    count = fewest_visits(SAMPLING)
    stride = len(repeats) // count
    return [repeat["samples_ns"][repeat["dropped"] :] for repeat in repeats[start::stride][:count]]


@cache
def coverage_of(name: str) -> float:
    """The share of all cells of such visits whose interval covers the median of all samples of
    that size and placement.
    """
    hits = []
    for places in read(name).values():
        for repeats in places.values():
            middle = statistics.median(
                sample for repeat in repeats for sample in repeat["samples_ns"][repeat["dropped"] :]
            )
            intervals = [
                reported_interval(visits(repeats, start), 0.95, TICK_NS)
                for start in range(0, 28, 2)
            ]
            hits += [
                bounds is not None and bounds[0] <= middle <= bounds[1] for bounds in intervals
            ]
    assert len(hits) == 6 * 2 * 14
    return sum(hits) / len(hits)


@pytest.fixture(params=FILES)
def cells(request: pytest.FixtureRequest) -> Cells:
    return read(request.param)


def test_the_clock_counts_in_ticks(cells: Cells) -> None:
    samples = [sample for repeat in cells["8"]["out_of_place"] for sample in repeat["samples_ns"]]
    assert math.gcd(*samples) == TICK_NS


@pytest.mark.parametrize("name", FILES)
def test_intervals_of_visits_cover_pooled_medians_as_stated(name: str) -> None:
    assert coverage_of(name) >= 0.95
