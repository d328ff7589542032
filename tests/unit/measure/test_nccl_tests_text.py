"""The text is that of nccl-tests 2.20.0, byte for byte: against a real run, and by hand where
the run shows no case.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.core.result import Cell, EngineLibrary, RankDevice, Result, ResultRow, World
from busbw.measure.formats import nccl_tests_text as text
from busbw.report.read import read
from busbw.report.registry import view

Make = Callable[..., Result]
MakeCell = Callable[..., Cell]


def test_a_real_run_comes_out_byte_for_byte(recorded: Path) -> None:
    result = read((recorded / "nccl_tests/all_reduce_2xH200_one_process.json").read_bytes(), "x")
    # The JSON names one GPU of each process.
    result.world.devices[1].bus, result.world.devices[1].name = "0000:00:07", "NVIDIA H200"
    result.library.versions["nccl-tests"] = "2.19.6"  # only the text states the release
    assert (
        view("nccl-tests").render(result)
        == (recorded / "nccl_tests/all_reduce_2xH200_one_process.txt").read_text()
    )


@pytest.mark.parametrize(
    ("value", "width", "printed"),
    [
        (12440.704, 7, "12440.7"),
        (99999.995, 7, " 100000"),
        (1234567, 7, "1234567"),
        (9999999.4, 7, "9999999"),
        (12345678, 7, "1.2e+07"),
        (9999.95, 6, " 10000"),
        (1e6, 6, " 1e+06"),
        (0.004, 6, "  0.00"),
        (9999.994, 7, "9999.99"),
        (9999.996, 7, "10000.0"),
        (float("nan"), 6, "   nan"),
    ],
)
def test_numbers_take_the_most_decimals_that_fit(value: float, width: int, printed: str) -> None:
    assert text.number(value, width) == printed


def test_every_option_that_shows_has_its_lines(
    make: Make, golden: Callable[[str, str], None]
) -> None:
    result = make(
        spec={
            "report_timestamps": 1,
            "blocking": 3,
            "parallel_init": 1,
            "output_file": "out/run.json",
            "step_factor": 1,
        }
    )
    result.rows[0].timestamp, result.rows[1].timestamp = (
        "2026-11-21 18:24:52",
        "2026-11-21T18:24:53",
    )
    result.reduced_max_bytes = 12703978837
    result.memory = {
        "init": 523 << 20,
        "user": 3 << 30,
        "collective": 12 << 10,
        "total": (3 << 30) + (523 << 20) + (12 << 10),
    }
    result.errors = ["net.cc:1 unhandled system error"]
    golden("nccl_tests_all_lines.txt", view("nccl-tests").render(result))


def test_per_iteration_columns(make: Make, golden: Callable[[str, str], None]) -> None:
    result = make(spec={"per_iter_timing": 1, "per_iter_skip": 1, "report_timestamps": 1})
    for row in result.rows:
        for cell in (row.out_of_place, row.in_place):
            assert cell
            cell.samples_s, cell.skipped = [1e-3, 16e-6, 17e-6, 18e-6], 1
        row.timestamp = "2026-11-21 18:24:52"
    golden("nccl_tests_per_iteration.txt", view("nccl-tests").render(result))


def test_cputime_changes_the_title_and_the_time_alone(make: Make) -> None:
    result = make(spec={"report_cputime": 1})
    assert result.rows[0].out_of_place
    result.rows[0].out_of_place.cpu_time_s = 3.5e-6
    titles = text.header(result).splitlines()[-2]
    assert titles.count("cputime") == 2
    assert len(titles) == len(text.header(make()).splitlines()[-2])
    assert text.row(result, result.rows[0]).split()[5:8] == ["3.50", "0.00", "0.00"]


def test_unchecked_cells_say_na_one_column_narrower(make: Make, make_cell: MakeCell) -> None:
    row = ResultRow(
        1024, 128, "float", "", -1, make_cell(20, 1, 0.5), make_cell(21, 1, 0.5, None), 20
    )
    result = make([row], spec={"collective": "alltoall"})
    line = text.row(result, row)
    assert (
        line
        == "        1024           128     float    none      -1    20.00    1.00    0.50       0  "
        "  21.00    1.00    0.50    N/A\n"
    )
    assert len(line.split()) == 13


def test_hypercube_prints_no_operator(make: Make, make_cell: MakeCell) -> None:
    row = ResultRow(1024, 128, "float", "", -1, make_cell(20, 1, 1), make_cell(21, 1, 1), 20)
    assert len(text.row(make([row], spec={"collective": "hypercube"}), row).split()) == 12


def test_rooted_and_operator_columns(make: Make, make_cell: MakeCell) -> None:
    row = ResultRow(1024, 128, "bfloat16", "prod", 3, make_cell(20, 1, 1), make_cell(21, 1, 1), 20)
    assert text.row(make([row], spec={"collective": "reduce"}), row).split()[2:5] == [
        "bfloat16",
        "prod",
        "3",
    ]
    assert text.row(make([row], spec={"collective": "broadcast"}), row).split()[2:5] == [
        "bfloat16",
        "none",
        "3",
    ]
    assert text.row(make([row], spec={"collective": "sendrecv"}), row).split()[2:5] == [
        "bfloat16",
        "prod",
        "3",
    ]


def test_many_wrong_elements(make: Make, make_cell: MakeCell) -> None:
    row = ResultRow(
        1024, 128, "float", "sum", -1, make_cell(20, 1, 1, 12), make_cell(21, 1, 1, 1234567), 20
    )
    result = make([row], out_of_bounds=3)
    assert text.row(result, row).endswith("1.00    1.00  1.23457e+06\n")
    assert "# Out of bounds values : 3 FAILED\n" in text.footer(result)


@pytest.mark.parametrize(
    ("minimum", "word"),
    [
        ("30", "OK"),
        ("33.4", "OK"),
        ("33.41", "FAILED"),
        ("fast", "OK"),
        ("100 GB/s", "FAILED"),
        ("-1", ""),
        ("100GB", "FAILED"),
        ("0x1p4", "OK"),
        ("0x1p10", "FAILED"),
        ("inf", "FAILED"),
        ("nan", "OK"),
        ("3e1", "OK"),
        ("1e3x", "FAILED"),
        ("", "OK"),
        ("-1x", ""),
    ],
)
def test_minimum_bandwidth_fails_below_nine_tenths(make: Make, minimum: str, word: str) -> None:
    result = make(environment={"NCCL_TESTS_MIN_BW": minimum})
    assert result.average_busbw() / 1e9 == pytest.approx(30.06275)
    assert f"# Avg bus bandwidth    : 30.0628 {word}\n" in text.footer(result)


def test_no_rows_average_nan(make: Make) -> None:
    assert "# Avg bus bandwidth    : nan \n" in text.footer(make([]))


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        (1, "# Blocking Enabled: wait and barrier after each inner iteration (-m) "),
        (2, "# Blocking Enabled: wait after each inner iteration (-m), no barrier "),
        (
            3,
            (
                "# Blocking Enabled: wait and barrier after each outer iteration (-n); time"
                " excludes barrier "
            ),
        ),
    ],
)
def test_blocking_modes(make: Make, mode: int, line: str) -> None:
    assert line in text.header(make(spec={"blocking": mode})).splitlines()
    assert "Blocking" not in text.header(make())


def test_only_names_ending_in_json_are_announced(make: Make) -> None:
    assert text.header(make(spec={"output_file": "a.JSON"})).startswith(
        "# Writing JSON output to a.JSON\n# nccl-tests"
    )
    assert text.header(make(spec={"output_file": "a.json.0"})).startswith(
        "# Writing JSON output to a.json.0\n"
    )
    assert text.header(make(spec={"output_file": "a.txt"})).startswith("# nccl-tests")


def test_an_engine_without_nccl_and_without_pci(make: Make) -> None:
    device = RankDevice(0, 77, "a-very-long-host-name.cluster", 0, "", "CPU")
    result = make(library=EngineLibrary("mpi"), world=World([device], 1))
    assert text.header(result).startswith(
        "# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=0 nccl-library=0\n"
    )
    assert (
        "#  Rank  0 Group  0 Pid     77 on a-very-long-host-name device  0 [0000:00:00] CPU\n"
        in text.header(result)
    )


def test_the_devices_of_one_process_end_after_two_kilobytes(make: Make) -> None:
    devices = [
        RankDevice(rank, 5, "node1", rank, "0000:00:01", "NVIDIA " + "H" * 60) for rank in range(40)
    ]
    devices.append(RankDevice(40, 6, "node1", 0, "0000:00:02", "NVIDIA", process=1))
    lines = text.header(make(world=World(devices, 2))).split("# Using devices\n")[1]
    first = lines[: lines.index("#  Rank 40")]
    assert len(first) == 2047
    assert first.endswith("...\n")


def test_a_placement_that_was_not_run_is_blank(make: Make, make_cell: MakeCell) -> None:
    row = ResultRow(1024, 128, "float", "sum", -1, None, make_cell(21, 1, 1), 20)
    full_row = ResultRow(
        1024, 128, "float", "sum", -1, make_cell(21, 1, 1), make_cell(21, 1, 1), 20
    )
    line, full = text.row(make(), row), text.row(make(), full_row)
    assert len(line) == len(full)
    assert line[-34:] == full[-34:]
    assert len(line.split()) == 9
