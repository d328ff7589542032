"""The table of recorded losses against the records."""

import json
from datetime import date
from pathlib import Path
from statistics import fmean

import pytest

from busbw.core.table_file import cells
from busbw.stats.rounds import mean_interval
from busbw_accel.train.recorded_losses import FILE, RECORD, recorded_loss

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("row", cells(FILE, "busbw_accel"), ids=lambda row: row["method"])
def test_a_row_is_what_its_record_has(row):
    found = json.loads((ROOT / row["source"]).read_text())["found"]
    pairs = zip(found[row["method"]], found["none"], strict=True)
    shares = [run["bits"][-1] / dense["bits"][-1] - 1 for run, dense in pairs]
    interval = mean_interval(shares)
    assert float(row["loss"]) == pytest.approx(fmean(shares), abs=1e-5)
    assert float(row["half_width"]) == pytest.approx(interval.high - fmean(shares), abs=1e-5)
    assert date.fromisoformat(row["date"])
    assert row["date"] in (ROOT / RECORD).read_text()


def test_a_method_is_found_by_what_it_does():
    assert recorded_loss("int8")
    assert recorded_loss("int8+host") == recorded_loss("int8")
    assert recorded_loss("matrix_rank=8+powersgd") == recorded_loss("powersgd+matrix_rank=8")
    assert recorded_loss("int8+every=30")
    assert recorded_loss("topk+ratio=0.02") is recorded_loss("of another version") is None
