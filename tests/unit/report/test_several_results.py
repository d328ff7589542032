"""Pages of several results of one kind or one name."""

import re
from collections import Counter
from pathlib import Path

import pytest
from serving_results import backends, overlap

from busbw.cli.main import guarded
from busbw.report import results
from busbw.ui.html.axes import time_tick


def test_two_results_of_a_kind_have_ids_of_their_own(tmp_path: Path) -> None:
    names = ["a.json", "b.json"]
    for name in names:
        (tmp_path / name).write_text(results.render(backends(backends=["nccl"])))
    page = tmp_path / "page.html"
    assert (
        guarded(["report", *(str(tmp_path / name) for name in names), "--output", str(page)]) == 0
    )
    text = page.read_text(encoding="utf-8")
    ids = Counter(re.findall(r' id="([^"]*)"', text))
    assert ids and max(ids.values()) == 1
    labels = {name for found in re.findall(r'labelledby="([^"]*)"', text) for name in found.split()}
    assert labels and labels <= ids.keys()


def test_ticks_of_times_are_short() -> None:
    assert [time_tick(value) for value in (2e-9, 2e-4, 1e-3, 5.0)] == [
        "2 ns",
        "200 us",
        "1 ms",
        "5 s",
    ]


def test_results_that_differ_in_their_suffix_have_pages_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "run.json", tmp_path / "run.log"
    first.write_text(results.render(backends()))
    assert guarded(["report", str(first)]) == 0
    second.write_text(results.render(overlap()))
    assert guarded(["report", str(second)]) == 0
    assert guarded(["report", str(first)]) == 0
    pages = ["run.html", "run.log.html", "run.json.html"]
    assert capsys.readouterr().out.split() == [str(tmp_path / page) for page in pages]
