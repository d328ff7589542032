"""The PyTorch benchmark's CSV column for column, and the full CSV that other programs read."""

import csv
from collections.abc import Callable

import pytest

from busbw.core.result import Cell, Ideal, Result, ResultRow
from busbw.measure.formats.csv import torch_row
from busbw.report.registry import view

Make = Callable[..., Result]

# Printed by the PyTorch benchmark: all_gather over 8 ranks.
BENCHMARK = """\
size(B), count(elements), type, redop, in-place time(us), in-place algbw(GB/s), in-place busbw(GB/s), in-place ideal busbw(GB/s), in-place busbw efficiency(%)
1048576, 32768, float32, sum, 177.3238182067871, 5.913339846862521, 5.174172366004706, 450.0, 1.149816081334379
67108864, 2097152, float32, sum, 253.17668914794922, 265.0673102087353, 231.9338964326434, 450.0, 51.54086587392075
8589934592, 268435456, float32, sum, 20851.06372833252, 411.96625284531444, 360.4704712396501, 450.0, 80.1045491643667
"""


def test_the_benchmarks_csv(make: Make) -> None:
    printed = [line.split(", ") for line in BENCHMARK.splitlines()]
    rows = []
    for size, count, _, _, time_us, *_ in printed[1:]:
        time_s = float(time_us) / 1e6
        algbw = int(size) / time_s
        rows.append(
            ResultRow(
                int(size), int(count), "float", "", -1, None, Cell(time_s, algbw, algbw * 7 / 8), 20
            )
        )
    result = make(
        rows, spec={"collective": "all_gather"}, endpoint_ideal=Ideal(450e9, "any", "NVLink", "")
    )
    own_rows = [line.split(", ") for line in view("torch-csv").render(result).splitlines()]
    assert own_rows[0] == printed[0]
    for own_row, printed_row in zip(own_rows[1:], printed[1:], strict=True):
        assert own_row[:4] == printed_row[:4]
        assert own_row[7] == printed_row[7] == "450.0"
        assert [float(word) for word in own_row[4:]] == pytest.approx(
            [float(word) for word in printed_row[4:]], rel=1e-14
        )
        assert [repr(float(word)) for word in own_row[4:]] == own_row[4:]


def test_unknown_values_are_na(make: Make, make_cell: Callable[..., Cell]) -> None:
    row = ResultRow(8, 4, "half", "max", -1, make_cell(2, 4, 4), make_cell(2, 4, 4), 20)
    assert torch_row(make([row]), row) == "8, 4, float16, max, 2.0, 4.0, 4.0, N/A, N/A\n"
    row.in_place = None
    bound = Ideal(450e9, "any", "NVLink", "")
    assert (
        torch_row(make([row], endpoint_ideal=bound), row)
        == "8, 4, float16, max, N/A, N/A, N/A, 450.0, N/A\n"
    )


def test_the_full_csv_has_a_line_per_row_and_placement(make: Make) -> None:
    result = make(ideal=Ideal(450e9, "ring", "NVLink", ""), program='all"reduce, perf')
    result.rows[0].in_place = None
    cell = result.rows[1].in_place
    assert cell
    cell.samples_s, cell.skipped, cell.wrong = [1.0, 2e-5, 1e-5], 1, None
    lines = list(csv.DictReader(view("csv").render(result).splitlines()))
    assert [line["size_bytes"] for line in lines] == ["8", "1048576", "1048576"]
    assert [line["placement"] for line in lines] == ["out_of_place", "out_of_place", "in_place"]
    last = lines[-1]
    assert float(last["time_us"]) == pytest.approx(14.82)
    assert float(last["ideal_percent"]) == pytest.approx(70.76 / 4.5)
    assert (
        last["samples"],
        last["skipped_samples"],
        last["wrong_elements"],
        last["cpu_time_us"],
    ) == ("2", "1", "", "")
    assert float(last["max_us"]) == pytest.approx(20)
    assert (last["iterations"], last["repeat"]) == ("20", ""), (
        "what was timed, of which two are summarized"
    )
    assert (
        lines[0]["samples"],
        lines[0]["wrong_elements"],
        lines[0]["ranks"],
        lines[0]["program"],
    ) == ("", "0", "2", 'all"reduce, perf')


def test_with_precise_timing_each_placement_has_its_own_count(make: Make) -> None:
    result = make(spec={"sampling": {}})
    row = result.rows[0]
    assert row.out_of_place and row.in_place
    row.out_of_place.samples_s, row.in_place.samples_s, row.iters = [2e-5] * 12, [2e-5] * 30, 12
    row.out_of_place.skew_s = 2.5e-6
    row.out_of_place.stopped, row.in_place.stopped, row.in_place.dropped = "ok", "ok", 10
    lines = list(csv.DictReader(view("csv").render(result).splitlines()))
    assert [
        (line["placement"], line["iterations"], line["samples"], line["repeat"])
        for line in lines[:2]
    ] == [("out_of_place", "12", "12", ""), ("in_place", "30", "20", "")]
    assert [line["skew_us"] for line in lines[:2]] == ["2.5", ""]


def test_repeats_can_be_distinguished(make: Make) -> None:
    result = make(spec={"sampling": {"repeats": 2}})
    result.rows[1].repeat = 1
    lines = list(csv.DictReader(view("csv").render(result).splitlines()))
    assert [(line["size_bytes"], line["repeat"]) for line in lines] == [
        ("8", "0"),
        ("8", "0"),
        ("1048576", "1"),
        ("1048576", "1"),
    ]
