"""A result survives writing and reading, and gives its average and whether data was wrong."""

import math

import msgspec
import pytest

from busbw.core.result import Cell, Mismatch, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec


def test_a_result_reads_back_as_it_was_written() -> None:
    wrong = Cell(1e-5, 1e9, 2e9, 3, mismatches=[Mismatch(1, 7, "1.5", "nan", 3)])
    result = Result(
        SweepSpec(collective="all_reduce"),
        rows=[ResultRow(64, 16, "float", "sum", -1, wrong, None, 20)],
    )
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result


def test_results_do_not_share_rows() -> None:
    first, other = (Result(SweepSpec(collective="all_reduce")) for _ in range(2))
    first.rows.append(ResultRow(8, 2, "float", "sum", -1, None, None, 20))
    assert other.rows == []


def test_the_average_is_the_plain_mean_of_all_cells() -> None:
    rows = [
        ResultRow(8, 2, "float", "sum", -1, Cell(1, 1, 10), Cell(1, 1, 20), 20),
        ResultRow(16, 4, "float", "sum", -1, Cell(1, 1, 0), None, 20),
    ]
    assert Result(SweepSpec(collective="all_reduce"), rows=rows).average_busbw() == pytest.approx(
        10
    )
    assert math.isnan(Result(SweepSpec(collective="all_reduce")).average_busbw())


def test_the_rank_count_is_that_of_one_communicator() -> None:
    devices = [RankDevice(rank, 1, "h", rank, "", "GPU") for rank in range(8)]
    assert (World([], 0).ranks, World(devices, 8).ranks) == (0, 8)
    for device in devices:
        device.group = device.rank % 3
    assert World(devices, 8, groups=3).ranks == 3


def test_wrong_data_follows_from_the_out_of_bounds_count() -> None:
    result = Result(SweepSpec(collective="all_reduce"))
    assert not result.wrong()
    result.out_of_bounds = 1
    assert result.wrong()
