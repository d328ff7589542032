"""Every view prints the same time, interval and n of a cell: those of the measurement, whatever
samples are stored.
"""

import csv
import itertools
import json
import math
import random
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

import msgspec
import pytest

from busbw.cli.main import guarded
from busbw.core.cells import all_figures, cells, figures, headline
from busbw.core.result import Cell, Result, ResultRow
from busbw.core.sweep import Sampling
from busbw.history import comparison_text
from busbw.history import text as history_text
from busbw.measure import adaptive_timing
from busbw.measure.plan import BandwidthFactors
from busbw.report import comparison as html_comparison
from busbw.report.read import read
from busbw.report.registry import VIEWS, view
from busbw.report.rows import ReportInput
from busbw.report.rows import rows as html_rows
from busbw.stats.compare import compare
from busbw.stats.history import check
from busbw.stats.sampling import next_step
from busbw.ui.number_formats import bandwidth_text, time_text

pytestmark = [
    pytest.mark.xdist_group("one figure"),  # each result is measured once
    pytest.mark.usefixtures("ranks_are_forks"),
]
SIZES = ("-b", "1K", "-e", "4K", "-f", "2", "--check", "0")
RUNS = {
    "sim": ("--engine", "sim", "--ranks", "2", "--sim", "noise=0.1,outlier=0.05"),
    "mpi": ("--engine", "mpi", "--ranks", "2", "--max-time", "0.1"),
    "sim, classic": shlex.split(
        "--engine sim --ranks 2 --sim noise=0.1 --timing classic -I 1 -K 3"
    ),
    "mpi, classic": shlex.split("--engine mpi --ranks 2 --timing classic -I 1 -K 3"),
}


class Expected(NamedTuple):
    """The figures of a cell, from the measurement."""

    time_s: float
    low_s: float | None
    high_s: float | None
    n: int


def warmed_up(draw: random.Random, sampling: Sampling) -> tuple[Cell, Expected]:
    """A cell with a dropped head and correlated samples, of which only every third is stored."""
    levels = itertools.chain((5e-4 for _ in range(100)), itertools.repeat(1e-5))
    sampled, state, more = adaptive_timing.CellSamples(), 0.0, 100
    while more:
        sampled.visits.append(more)
        for level in itertools.islice(levels, more):
            state = 0.6 * state + 0.8 * draw.gauss(0, 1)
            sampled.longest_s.append(level * math.exp(0.1 * state))
        sampled.decision = next_step(sampled.by_visit(), sampling, 0.0)
        more = sampled.decision.more
    sampled.shortest_s, sampled.late_s = sampled.longest_s, [[0.0] * len(sampled.longest_s)] * 2
    cell = adaptive_timing.cell(sampled, sampling, 1, BandwidthFactors(8192, 1.0))
    expected = Expected(cell.time_s, cell.low_s, cell.high_s, len(sampled.longest_s) - cell.dropped)
    assert cell.dropped >= 20
    assert cell.samples_s
    cell.samples_s = cell.samples_s[: cell.dropped] + cell.samples_s[cell.dropped :: 3]
    return cell, expected


@pytest.fixture(scope="module", params=RUNS)
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Result, list[Expected]]:
    """A result, and the figures that every view must print for its cells, in table order."""
    file = tmp_path_factory.mktemp("measured") / "r.json"
    words = ["run", "all_reduce", *SIZES, *RUNS[request.param], "--no-history"]
    assert guarded([*words, "--json", str(file)]) == 0
    result = read(file.read_bytes(), "r.json")
    sampling = result.spec.sampling
    expected = [
        Expected(
            cell.time_s,
            cell.low_s,
            cell.high_s,
            len(cell.samples_s or []) - cell.dropped if sampling else row.iters,
        )
        for row, cell in ((figure.row, figure.cell) for figure in all_figures(result))
    ]
    if sampling:
        draw, precise = random.Random(3), msgspec.structs.replace(sampling, precision=0.03)
        drawn = [warmed_up(draw, precise) for _ in range(2)]
        result.rows.append(ResultRow(8192, 2048, "float", "sum", -1, drawn[0][0], drawn[1][0], 999))
        expected += [expected for _, expected in drawn]
    return result, expected


def lines(text: str, title: str) -> Iterator[dict[str, str]]:
    """The rows of a table of columns two spaces apart, by title."""
    table = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    start = next(number for number, words in enumerate(table) if title in words)
    yield from (
        dict(zip(table[start], words, strict=False))
        for words in table[start + 1 :]
        if len(words) == len(table[start])
    )


def piped(text: str) -> list[dict[str, str]]:
    """The rows of all Markdown tables, by title without its unit."""
    table = [
        [word.strip() for word in line.strip("| ").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    titles = [title.split(" (")[0] for title in table[0]]
    return [
        dict(zip(titles, words, strict=True))
        for words in table
        if not words[0].startswith("---") and not words[0].startswith("size")
    ]


def grid(root: Element, titles: int) -> list[dict[str, str]]:
    """The rows of an HTML table, by title; cells that span rows stand in the first one alone, so
    columns are counted from the end.
    """
    table = [
        [" ".join("".join(cell.itertext()).split()) for cell in line] for line in root.iter("tr")
    ]
    heads = [re.sub(r" (%|GB/s|\d.*)$", "", title) for title in table[titles]]
    return [
        dict(zip(reversed(heads), reversed(words), strict=False)) for words in table[titles + 1 :]
    ]


def half_width(expectation: Expected) -> str:
    if expectation.low_s is None or expectation.high_s is None:
        return "-"
    percent = (
        100
        * max(expectation.high_s - expectation.time_s, expectation.time_s - expectation.low_s)
        / expectation.time_s
    )
    return ">999" if percent > 999 else f"{percent:.0f}" if percent >= 99.95 else f"{percent:.1f}"


def test_the_views_of_a_result_agree(measured: tuple[Result, list[Expected]]) -> None:
    result, expected = measured
    placed = list(zip(all_figures(result), expected, strict=True))
    out = [expectation for figure, expectation in placed if figure.placement == "out of place"]
    precisely = result.spec.sampling is not None
    table_lines = list(lines(view("table").render(result), "busbw"))
    for table_rows in (table_lines, piped(view("markdown").render(result))):
        assert [line["time"] for line in table_rows] == [
            time_text(expectation.time_s) for expectation in out
        ]
        if precisely:
            assert [(line["+-"], line["n"]) for line in table_rows] == [
                (half_width(expectation), str(expectation.n)) for expectation in out
            ]
    for line, expectation in zip(
        csv.DictReader(view("csv").render(result).splitlines()), expected, strict=True
    ):
        assert float(line["time_us"]) == pytest.approx(expectation.time_s * 1e6)
        assert int(line["iterations"]) - int(line["dropped_samples"] or 0) == expectation.n
        if precisely:
            assert int(line["samples"]) == expectation.n
            assert float(line["p50_us"]) == pytest.approx(expectation.time_s * 1e6)
            assert [float(line[name] or 0) for name in ("low_us", "high_us")] == pytest.approx(
                [1e6 * (end or 0.0) for end in (expectation.low_s, expectation.high_s)]
            )
    for shown_row, row in zip(
        json.loads(view("nccl-tests-json").render(result))["results"], result.rows, strict=True
    ):
        own = [expectation for figure, expectation in placed if figure.row is row]
        assert [shown_row[name]["time"] for name in ("out_of_place", "in_place")] == pytest.approx(
            [expectation.time_s * 1e6 for expectation in own], abs=1e-6
        )
        assert int(shown_row["actual_iterations"]) == own[0].n
    again = read(view("nccl-tests").render(result).encode(), "log", "all_reduce")
    assert [figure.cell.time_s for figure in all_figures(again)] == pytest.approx(
        [expectation.time_s for expectation in expected], rel=1e-2
    )
    again = read(view("json").render(result).encode(), "r.json")
    assert [
        (figure.time_s, figure.cell.low_s, figure.cell.high_s, figure.n)
        for figure in all_figures(again)
    ] == expected
    in_place = [expectation for figure, expectation in placed if figure.placement == "in place"]
    assert [
        float(line.split(", ")[4]) for line in view("torch-csv").render(result).splitlines()[1:]
    ] == pytest.approx([expectation.time_s * 1e6 for expectation in in_place])
    top = headline(result)
    busbw_line = f"busbw {bandwidth_text(top.busbw)} GB/s" if top else "busbw unknown"
    assert busbw_line in view("brief").render(result)
    assert len(VIEWS) == 8, "a new view belongs here"


def test_the_report_agrees(measured: tuple[Result, list[Expected]]) -> None:
    result, expected = measured
    table_rows = grid(html_rows(result), 0)
    assert [(line["time"], line["n"]) for line in table_rows] == [
        (time_text(expectation.time_s), str(expectation.n)) for expectation in expected
    ]
    for line, expectation in zip(table_rows, expected, strict=True):
        if expectation.low_s is not None and expectation.high_s is not None:
            assert line["interval"].split(" – ")[-1] == time_text(expectation.high_s)
            assert time_text(expectation.low_s).startswith(line["interval"].split(" – ")[0])


def test_a_comparison_and_the_history_agree(measured: tuple[Result, list[Expected]]) -> None:
    result, expected = measured
    named_results = [("a.json", result), ("b.json", result)]
    compared = compare([named_results[0]], [named_results[1]])
    times = [time_text(expectation.time_s) for expectation in expected]
    assert [
        (line["time A"], line["time B"]) for line in lines(comparison_text.text(compared), "time A")
    ] == list(zip(times, times, strict=True))
    assert sorted(line["time A"] for line in piped(comparison_text.markdown(compared))) == sorted(
        times
    )
    for cell, expectation in zip(
        json.loads(comparison_text.json(compared))["cells"], expected, strict=True
    ):
        assert (cell["a_s"], cell["b_s"]) == (expectation.time_s, expectation.time_s)
        assert cell["by"] == "means" or (cell["a_count"], cell["b_count"]) == (
            expectation.n,
            expectation.n,
        )
    inputs = [
        ReportInput(index, name, named_result)
        for index, (name, named_result) in enumerate(named_results)
    ]
    table = html_comparison.comparison(inputs, {1: compared})[-1]
    assert [line["time A"] for line in grid(table, 1)] == times
    earlier = {run: {key: figure.time_s / 2 for key, figure in cells(result)} for run in range(19)}
    slower = history_text.checked(check(result, earlier, 0.95))
    assert [line["time"] for line in lines(slower, "median")] == times
    assert all(figure.n for row in result.rows for figure in figures(row))
