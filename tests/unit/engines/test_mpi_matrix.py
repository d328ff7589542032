"""The matrix: every collective x type x operator x placement x root on real CPU ranks gives correct
data, and wrong data is found.

One mpirun for each number of ranks runs mpi_matrix_rank.py, which verifies several sizes of every
combination, also tiny, odd and shifted ones, and flips one bit of one rank's receive buffer after
every combination.
"""

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from busbw.core.collectives import COLLECTIVES
from busbw.core.dtypes import DTYPES
from busbw.core.errors import NoMeasurement
from busbw.core.redops import REDOPS
from busbw.launch import job, mpirun

LIMIT_S = 100
PROGRAM = Path(__file__).with_name("mpi_matrix_rank.py")
SOURCE = Path(__file__).parents[3] / "src"
pytestmark = pytest.mark.xdist_group("mpi matrix")  # each matrix is run once
RANKS = pytest.mark.parametrize("ranks", [2, 3, 4])
Matrix = Callable[[int], dict[str, Any]]


@pytest.fixture(scope="module")
def matrix(warm_busbw: str) -> Matrix:
    """The outcome of the matrix on that many ranks; run once each."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        launcher = mpirun.find()
    except NoMeasurement as error:
        pytest.skip(error.message)

    @cache
    def run(ranks: int) -> dict[str, Any]:
        output: list[bytes] = []
        talk: list[bytes] = []
        line = mpirun.command(launcher, [warm_busbw, str(PROGRAM)], ranks)
        env = {**os.environ, "PYTHONPATH": str(SOURCE)}
        try:
            status = job.run(line, env, output.append, talk.append, LIMIT_S)
        except NoMeasurement as error:
            status = error.message
        assert status == 0, "\n".join(
            [str(status), *(words.decode(errors="replace") for words in talk)]
        )
        answer: dict[str, Any] = json.loads(output[0])
        return answer

    return run


def combinations(ranks: int) -> set[str]:
    """Every combination of collective, type, operator and root for this number of ranks; on more
    than 2 ranks some types, on 4 the first and last root.
    """
    roots = range(ranks) if ranks < 4 else (0, ranks - 1)
    return {
        f"{row.name} {kind.name} {op} {root}"
        for row in COLLECTIVES
        if row.name != "hypercube" or ranks in (2, 4)
        for kind in (DTYPES if ranks == 2 else DTYPES[::4])
        for op in (
            [op.name for op in REDOPS]
            if row.name in ("all_reduce", "reduce", "reduce_scatter")
            else [""]
        )
        for root in (roots if row.name in ("reduce", "broadcast", "gather", "scatter") else [-1])
    }


@RANKS
def test_every_combination_gives_correct_data(matrix: Matrix, ranks: int) -> None:
    report = matrix(ranks)
    assert report["ranks"] == ranks
    assert report["wrong"] == []
    assert set(report["covered"]) == combinations(ranks)
    unchecked = tuple(row.name for row in COLLECTIVES if not row.in_place_checked)
    in_place = sum(not name.startswith(unchecked) for name in combinations(ranks))
    assert report["verified"] >= 3 * (len(combinations(ranks)) + in_place)


@RANKS
def test_one_flipped_bit_is_reported_with_rank_offset_and_values(
    matrix: Matrix, ranks: int
) -> None:
    report = matrix(ranks)
    assert report["missed"] == []
    assert set(report["caught"]) == combinations(ranks)


def test_unsupported_mpi_operations_are_refused_in_advance(matrix: Matrix) -> None:
    too_long, graph = matrix(2)["refusals"]
    assert too_long == "all_reduce: 2147483648 elements are more than MPI's count of 2147483647"
    assert graph.startswith("-G: the mpi engine has no CUDA graphs")


def test_every_rank_is_a_device_and_shares_the_hosts_memory(matrix: Matrix) -> None:
    report = matrix(2)
    assert report["devices"] == [0, 1]
    assert report["library"] == "mpi"
    share, total = report["memory"]
    assert share == pytest.approx(total / 2, rel=0.05), (
        "read one after the other, while other programs use memory too"
    )
