"""The table reads well in a pipe: under 100 columns, without colour, the same streamed as whole."""

import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from busbw.cli.terminal import COLUMNS
from busbw.core.cells import figures
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Cell, EngineLibrary, Ideal, Result, ResultRow
from busbw.history.run_keys import stored
from busbw.measure.formats import markdown, table
from busbw.report import summary
from busbw.report.read import read
from busbw.report.registry import view
from busbw.report.rows import ReportInput
from busbw.ui import number_formats

Make = Callable[..., Result]
FINDINGS = [
    RunFinding(
        "link.width",
        Verdict.FAIL,
        "GPU 3 has 8 of 16 PCIe lanes",
        "current_link_width=8",
        "reseat the card, then run busbw check",
    ),
    RunFinding("gpu.clock", Verdict.PASS, "clocks were steady"),
]
IDEAL = Ideal(450e9, "ring", "NVLink 4", "18 links x 25 GB/s")


def page_text(result: Result) -> str:
    """The head of the report."""
    inputs = [ReportInput(0, "r.json", result)]
    head = [*summary.sentence(inputs, {}), summary.summary(inputs)]
    return " ".join(" ".join(part.itertext()) for part in head if part is not None)


@pytest.fixture
def real(recorded: Path) -> Result:
    result = read((recorded / "nccl_tests/all_reduce_2xH200_one_process.txt").read_bytes(), "x")
    result.ideal, result.findings = IDEAL, list(FINDINGS)
    return result


def test_a_real_run(real: Result, golden: Callable[[str, str], None]) -> None:
    golden("table_all_reduce.txt", view("table", COLUMNS).render(real))


def test_a_real_run_in_markdown(real: Result, golden: Callable[[str, str], None]) -> None:
    golden("markdown_all_reduce.md", view("markdown").render(real))


def test_every_column_fits_in_101_characters(make: Make, make_cell: Callable[..., Cell]) -> None:
    cells = make_cell(1.5e6, 99999, 99999, 12), make_cell(999.9, 1234.5, 1234.5, 345)
    row = ResultRow(1023 << 30, 99999999999, "bfloat16", "mulsum", 1023, *cells, 20)
    result = make([row], spec={"collective": "reduce", "op": "all"}, ideal=IDEAL)
    lines = (table.header(result).split("\n\n")[1] + table.row(result, row)).splitlines()
    assert lines[0].split() == [
        "size",
        "count",
        "type",
        "op",
        "root",
        "time",
        "algbw",
        "busbw",
        "ideal",
        "in-place",
        "wrong",
    ]
    assert max(map(len, lines)) <= 101
    assert lines[2].split()[-1] == "357"


def test_empty_columns_are_left_out(make: Make) -> None:
    assert {column.title for column in table.columns(make())}.isdisjoint(
        {"op", "root", "repeat", "timestamp"}
    )
    assert "op" in {column.title for column in table.columns(make(spec={"op": "max"}))}
    assert "op" not in {
        column.title
        for column in table.columns(make([], spec={"collective": "broadcast", "op": "max"}))
    }


def test_repeats_and_time_of_day_are_columns_if_requested(make: Make) -> None:
    result = make(spec={"sampling": {"repeats": 2}, "report_timestamps": 1})
    result.rows[1].repeat, result.rows[1].timestamp = 1, "2026-11-21T18:24:55+00:00"
    titles, _, first, second = (
        table.header(result).split("\n\n")[1]
        + "".join(table.row(result, row) for row in result.rows)
    ).splitlines()
    assert (titles.split()[0], titles.split()[-1]) == ("repeat", "timestamp")
    assert (first.split()[0], first.split()[-1]) == ("0", "-")
    assert (second.split()[0], second[-19:], len(second)) == (
        "1",
        "2026-11-21 18:24:55",
        len(titles),
    )


def test_the_peak_is_that_of_the_history(make: Make, make_cell: Callable[..., Cell]) -> None:
    """Of both placements: one run has one peak, whatever prints it."""
    row = ResultRow(
        8, 2, "float", "sum", -1, make_cell(20, 1, float("nan")), make_cell(20, 1, 1), 20
    )
    result = make([*make().rows, row], ideal=IDEAL)
    assert "\npeak   70.76 GB/s at 1 MiB in place, 15.7 % of ideal\n" in table.footer(result)
    assert "Peak busbw 70.76 GB/s at 1 MiB in place, 15.7 % of ideal; " in markdown.footer(result)
    assert stored(result, datetime(2026, 11, 21)).peak_busbw == 70.76e9
    result.rows[1].in_place = None
    assert "\npeak   49.49 GB/s at 1 MiB, 11.0 % of ideal\n" in table.footer(result)
    without = make([ResultRow(8, 2, "float", "sum", -1, make_cell(20, 1, float("nan")), None, 20)])
    assert "\npeak   its cells have no busbw\n" in table.footer(without)


def test_a_peak_in_a_burst_of_a_lab_is_no_share_of_its_rate(
    make: Make, make_cell: Callable[..., Cell]
) -> None:
    ideal = Ideal(0.125e9, "endpoint-optimal", "the lab's rate, 1 x 0.125 GB/s", "")
    burst, large = (
        ResultRow(size, size, "float", "sum", -1, make_cell(200.0, busbw, busbw), None, 20)
        for size, busbw in ((65536, 0.3), (1 << 20, 0.1))
    )
    result = make([burst, large], ideal=ideal)
    words = "0.300 GB/s at 64 KiB, within the 256 KiB that the lab passes at full speed"
    assert f"\npeak   {words}\n" in table.footer(result)
    assert f"busbw {words}; " in view("brief").render(result)
    assert "240.0 %" not in page_text(result)
    result.rows = [large]
    assert "\npeak   0.100 GB/s at 1 MiB, 80.0 % of ideal\n" in table.footer(result)


def test_the_headline_is_the_surest_peak(make: Make, make_cell: Callable[..., Cell]) -> None:
    """The fastest cell of three is the noisiest one; without the precise one it is shown so."""
    ends = [("ok", 99.0, 101.0), ("budget", 1.0, 900.0), ("unstable", 9.9, 10.1)]
    rows = [
        ResultRow(size, size, "float", "sum", -1, make_cell(time, busbw, busbw), None, 20)
        for size, time, busbw in ((1024, 100.0, 1.0), (2048, 50.0, 9.0), (4096, 10.0, 5.0))
    ]
    for row, (stopped, low_us, high_us) in zip(rows, ends, strict=True):
        assert row.out_of_place is not None
        row.out_of_place.stopped, row.out_of_place.n = stopped, 30
        row.out_of_place.low_s, row.out_of_place.high_s = low_us / 1e6, high_us / 1e6
    result = make(rows, {"sampling": {"precision": 0.05}}, ideal=IDEAL)
    headline = "1.00 GB/s +-1.0 % at 1 KiB"
    larger = "; less certain cells reach 9.00 GB/s (not known within a factor of 10) at 2 KiB"
    assert f"\npeak   {headline}, 0.2 % of ideal{larger}\n" in table.footer(result)
    brief = f"busbw {headline}, 0.2 % of the ideal{larger}; data checked"
    assert brief in view("brief").render(result)
    page = page_text(result)
    assert f"Peak busbw {headline}, 0.2 % of ideal{larger}; data" in page and "10.00 us" not in page
    assert f" +-1.0 %, 1 KiB, out of place{larger} of ideal" in page
    assert stored(result, datetime(2026, 11, 21)).peak_busbw == 1e9
    rows[2].out_of_place.busbw = 9.5e9  # type: ignore[union-attr]
    assert "; unstable cells reach 9.50 GB/s +-1.0 % at 4 KiB\n" in table.footer(result)
    result.rows = rows[1:2]
    wide = "9.00 GB/s (not known within a factor of 10) at 2 KiB, 2.0 % of ideal"
    assert f"\npeak   {wide}\n" in table.footer(result)
    assert f"Peak busbw {wide}; mean" in markdown.footer(result)
    assert f"Peak busbw {wide}; data check: passed." in page_text(result)
    assert stored(result, datetime(2026, 11, 21)).peak_busbw == 9e9


@pytest.mark.parametrize(
    ("high_us", "expected"),
    [(20.1, "0.5"), (39.992, "100"), (45.0, "125"), (1e6, ">999"), (1e12, ">999")],
)
def test_how_far_an_interval_reaches_fits_its_column(
    make_cell: Callable[..., Cell], make: Make, high_us: float, expected: str
) -> None:
    cell = make_cell(20, 1, 1)
    cell.low_s, cell.high_s = 20e-6, high_us * 1e-6
    row = ResultRow(8, 2, "float", "sum", -1, cell, None, 20)
    column = table.BY_TITLE["+-"]
    assert column.text(make([row]), figures(row)[0]) == expected
    assert len(expected) <= column.width


def test_unknown_values_are_dashes(make: Make, make_cell: Callable[..., Cell]) -> None:
    row = ResultRow(8, 2, "float", "sum", -1, make_cell(20, 1, 1, None), None, 20)
    assert table.row(make([row]), row).split()[-3:] == ["-", "-", "N/A"]
    only = ResultRow(8, 2, "float", "sum", -1, None, make_cell(20, 1, 2), 20)
    assert table.row(make([only]), only).split()[-4:] == ["2.00", "-", "2.00", "0"]


def test_a_run_that_ended_early_is_reported(make: Make) -> None:
    result = make([], complete=False, errors=["lost rank 3"], out_of_bounds=4)
    text = table.footer(result)
    for line in (
        "no size was measured",
        "the sweep did not end",
        "error: lost rank 3",
        "wrong data: 4 checks saw",
    ):
        assert line in text
    assert "did not end" in markdown.footer(result)


def test_bars_grow_with_the_values() -> None:
    assert number_formats.sparkline([0, 50, 100]) == "▁▅█"
    assert number_formats.sparkline([0, 0]) == "▁▁"
    assert number_formats.sparkline([]) == ""
    assert number_formats.sparkline([float("nan"), 1]) == " █"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no-such-encoding"])
def test_bars_become_ascii_where_the_encoding_has_none(encoding: str, real: Result) -> None:
    assert number_formats.plain("busbw ▁▂▃▄▅▆▇█\n", encoding) == "busbw .:-=+*#@\n"
    converted = number_formats.plain(view("table").render(real), encoding)
    assert [len(line) for line in converted.splitlines()] == [
        len(line) for line in view("table").render(real).splitlines()
    ]
    assert converted.isascii()


def test_an_encoding_that_has_the_characters_keeps_them() -> None:
    assert number_formats.plain("▁█ \u00e9", "utf-8") == "▁█ \u00e9"
    assert number_formats.plain("\u00e9", "latin-1") == "\u00e9"
    assert number_formats.plain("\u00e9 \udcff", "ascii") == "? ?"
    assert number_formats.plain("\udcff", "utf-8") == "?"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 us"),
        (9.994e-6, "9.99 us"),
        (16.61e-6, "16.61 us"),
        (999.94e-6, "999.9 us"),
        (1.7176e-3, "1.718 ms"),
        (1.79, "1.790 s"),
        (2400, "2400.0 s"),
    ],
)
def test_times_choose_their_unit(seconds: float, text: str) -> None:
    assert number_formats.time_text(seconds) == text


@pytest.mark.parametrize(
    ("gb_s", "text"),
    [
        (0, "0.00"),
        (9.054e-10, "9.05e-10"),
        (9.054e-4, "9.05e-4"),
        (9.996e-4, "0.00100"),
        (0.0012345, "0.00123"),
        (0.0625, "0.0625"),
        (0.9996, "1.00"),
        (48.937, "48.94"),
        (389.125, "389.12"),
        (1234.56, "1234.6"),
        (12345.6, "12346"),
        (math.nan, "nan"),
    ],
)
def test_rates_have_at_least_three_digits_in_seven_characters(gb_s: float, text: str) -> None:
    assert number_formats.bandwidth_text(gb_s * 1e9) == text


@pytest.mark.parametrize(
    ("number", "text"), [(22809, "2.28.9"), (2804, "2.8.4"), (20901, "2.9.1"), (21605, "2.16.5")]
)
def test_versions_of_nccl(number: int, text: str) -> None:
    assert number_formats.nccl_version_text(number) == text
    assert number_formats.nccl_version_number(text) == number


def test_the_network_of_nccl_is_beside_its_version(make: Make) -> None:
    assert "nccl engine, NCCL 2.28.9, network Socket\n" in table.header(
        make(library=EngineLibrary("nccl", 22809, network="Socket"))
    )
    assert "nccl engine, NCCL 2.28.9\n" in table.header(make()), "nothing where nobody could tell"


def test_sizes_that_are_not_whole_elements_are_announced(make: Make) -> None:
    rounded = "3 B, the smallest rounded down to 0 B, 20 iterations"
    assert rounded in table.header(make(spec={"min_bytes": 3, "max_bytes": 3}))
    gathered = make(spec={"collective": "all_gather", "min_bytes": 40})
    assert "factor 131072, the smallest rounded down to 32 B" in table.header(gathered)
    assert "rounded" not in table.header(make())
