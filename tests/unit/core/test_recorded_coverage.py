"""The stated interval on real samples: 200 repeats of six sizes on two H200s, recorded under benchmarks/."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from busbw.core.sampling import stated

RECORD = Path(__file__).parents[3] / "benchmarks" / "precise_2xh200_202611" / "coverage.json"
CELLS: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(RECORD.read_text(encoding="ascii"))


def test_the_intervals_of_all_repeats_cover_the_pooled_medians_as_often_as_stated() -> None:
    hits = []
    for places in CELLS.values():
        for repeats in places.values():
            middle = statistics.median(sample for one in repeats for sample in one["samples_ns"][one["dropped"] :])
            hits += [one["low_ns"] <= middle <= one["high_ns"] for one in repeats]
    assert len(hits) == 6 * 2 * 200
    assert 0.93 <= sum(hits) / len(hits) <= 0.98


@pytest.mark.parametrize("size", CELLS)
def test_today_the_same_samples_give_the_same_interval(size: str) -> None:
    for repeats in CELLS[size].values():
        for one in repeats:
            found = stated(one["samples_ns"][one["dropped"] :], 0.95)
            assert found is not None
            assert found == (pytest.approx(one["low_ns"], abs=1.0), pytest.approx(one["high_ns"], abs=1.0))
