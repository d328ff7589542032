"""The stated interval on real samples: 200 repeats of six sizes on two H200s, three machines, recorded under benchmarks/."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from busbw.core.sampling import stated

RECORD = Path(__file__).parents[3] / "benchmarks" / "precise_2xh200_202611"
TICK_NS = 32  # of a GPU's events
FILES = ("coverage.json", "coverage_drifting.json", "coverage_drifting_2.json")

Cells = dict[str, dict[str, list[dict[str, Any]]]]


@pytest.fixture(params=FILES)
def cells(request: pytest.FixtureRequest) -> Cells:
    return json.loads((RECORD / request.param).read_text(encoding="ascii"))


def test_the_clock_counts_in_ticks(cells: Cells) -> None:
    samples = [sample for repeat in cells["8"]["out_of_place"] for sample in repeat["samples_ns"]]
    assert math.gcd(*samples) == TICK_NS


def test_the_intervals_of_all_repeats_cover_the_pooled_medians_as_often_as_stated(cells: Cells) -> None:
    hits = []
    for places in cells.values():
        for repeats in places.values():
            kept = [one["samples_ns"][one["dropped"] :] for one in repeats]
            middle = statistics.median(sample for samples in kept for sample in samples)
            every = [stated(samples, 0.95, TICK_NS) for samples in kept]
            hits += [found is not None and found[0] <= middle <= found[1] for found in every]
    assert len(hits) == 6 * 2 * 200
    assert 0.93 <= sum(hits) / len(hits) <= 0.98


def test_without_the_tick_the_same_samples_give_the_interval_that_was_recorded(cells: Cells) -> None:
    for places in cells.values():
        for repeats in places.values():
            for one in repeats:
                found = stated(one["samples_ns"][one["dropped"] :], 0.95)
                assert found == (pytest.approx(one["low_ns"], abs=1.0), pytest.approx(one["high_ns"], abs=1.0))
