"""The stated interval on real samples: 200 repeats of six sizes on two H200s, four machines, recorded under benchmarks/."""

import gzip
import json
import math
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from busbw.core.sweep import Sampling
from busbw.stats.sampling import Decision, first, next_step, reported_interval

RECORD = Path(__file__).parents[3] / "benchmarks" / "precise_2xh200_202611"
TICK_NS = 32  # of a GPU's events
FILES = ("coverage.json", "coverage_drifting.json", "coverage_drifting_2.json", "coverage_still_2.json.gz")

Cells = dict[str, dict[str, list[dict[str, Any]]]]


@cache
def read(name: str) -> Cells:
    data = (RECORD / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


@cache
def covered(name: str) -> float:
    """The share of all repeats whose interval covers the median of all samples of that size and placement."""
    hits = []
    for places in read(name).values():
        for repeats in places.values():
            kept = [one["samples_ns"][one["dropped"] :] for one in repeats]
            middle = statistics.median(sample for samples in kept for sample in samples)
            every = [reported_interval(samples, 0.95, TICK_NS) for samples in kept]
            hits += [found is not None and found[0] <= middle <= found[1] for found in every]
    assert len(hits) == 6 * 2 * 200
    return sum(hits) / len(hits)


@pytest.fixture(params=FILES)
def cells(request: pytest.FixtureRequest) -> Cells:
    return read(request.param)


def test_the_clock_counts_in_ticks(cells: Cells) -> None:
    samples = [sample for repeat in cells["8"]["out_of_place"] for sample in repeat["samples_ns"]]
    assert math.gcd(*samples) == TICK_NS


@pytest.mark.parametrize("name", FILES)
def test_recorded_intervals_cover_pooled_medians_as_stated(name: str) -> None:
    """The one machine that lies above 0.98 is the stillest: there a tick is more than it takes."""
    assert 0.93 <= covered(name) <= (0.99 if name == FILES[-1] else 0.98)


def test_all_machines_together_are_covered_as_often_as_stated() -> None:
    assert 0.93 <= statistics.mean(map(covered, FILES)) <= 0.98


def test_the_same_samples_give_the_interval_that_was_recorded(cells: Cells) -> None:
    """The first three were recorded before the clock's tick was part of it."""
    for places in cells.values():
        for repeats in places.values():
            for one in repeats:
                found = reported_interval(one["samples_ns"][one["dropped"] :], 0.95, one.get("tick_ns", 0.0))
                assert found == (pytest.approx(one["low_ns"], abs=1.0), pytest.approx(one["high_ns"], abs=1.0))


def replayed(samples: list[int], tick_ns: float) -> Decision:
    """The verdict of the loop on recorded samples; `more` where they end before it does."""
    sampling, n = Sampling(confidence=0.95), 0
    verdict = Decision(more=first(sampling))
    while verdict.more and n + verdict.more <= len(samples):
        n += verdict.more
        verdict = next_step([sample * 1e-9 for sample in samples[:n]], sampling, 0.0, tick_ns * 1e-9)
    return verdict


def test_the_recorded_cells_still_stop_as_precise(cells: Cells) -> None:
    """All of them did when they were recorded."""
    verdicts = [
        replayed(one["samples_ns"], one.get("tick_ns", 0.0)) for places in cells.values() for repeats in places.values() for one in repeats
    ]
    stopped = [verdict.stopped for verdict in verdicts if not verdict.more]
    assert set(stopped) == {"ok"}
    assert len(stopped) >= 2395
