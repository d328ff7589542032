"""The torch engine on CPUs: what PyTorch's Gloo supports gives correct data, and the rest is refused with a reason, without a hang.

torch_gloo_rank.py runs the table on two ranks, once under mpirun and once under torchrun.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from busbw.core.collectives import BY_NAME, COLLECTIVES
from busbw.core.dtypes import DTYPES
from busbw.core.errors import NoMeasurement
from busbw.core.redops import REDOPS
from busbw.launch import job, mpirun, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("gloo matrix")]  # each matrix is run once
LIMIT_S = 100
LAUNCHERS = pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
PROGRAM = Path(__file__).with_name("torch_gloo_rank.py")
SOURCE = Path(__file__).parents[3] / "src"
Matrix = Callable[[str], dict[str, Any]]
# Supported by every PyTorch since 2.4; newer ones may support more.
TYPES = ("int8", "uint8", "int32", "int64", "half", "float", "double")
OPERATORS = ("sum", "prod", "min", "max")


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """The outcome of the matrix under that launcher; run once each."""
    pytest.importorskip("torch", reason="PyTorch is not installed")

    @cache
    def run(launcher: str) -> dict[str, Any]:
        said: list[bytes] = []
        talk: list[bytes] = []
        # Without a visible GPU the engine uses Gloo.
        env = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        status = job.run(_line(launcher), env, said.append, talk.append, LIMIT_S)
        assert status == 0, b"\n".join(talk).decode(errors="replace")
        answer: dict[str, Any] = json.loads(said[0])
        return answer

    return run


def _line(launcher: str) -> list[str]:
    program = [sys.executable, str(PROGRAM)]
    if launcher == "torchrun":
        return torchrun.command(program, 2)
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        return mpirun.command(mpirun.find(), program, 2)
    except NoMeasurement as error:
        pytest.skip(error.message)


def combinations(types: tuple[str, ...], operators: tuple[str, ...]) -> set[str]:
    return {f"{row.name} {kind} {op}".strip() for row in COLLECTIVES for kind in types for op in (operators if row.reduces else ("",))}


@LAUNCHERS
def test_supported_gloo_combinations_give_correct_data(matrix: Matrix, launcher: str) -> None:
    seen = matrix(launcher)
    assert (seen["ranks"], seen["backend"], seen["devices"]) == (2, "gloo", [0, 1])
    assert seen["wrong"] == []
    assert set(seen["verified"]) >= combinations(TYPES, OPERATORS)


@LAUNCHERS
def test_wrong_data_is_detected_on_every_rank(matrix: Matrix, launcher: str) -> None:
    seen = matrix(launcher)
    rows = [BY_NAME[name.split()[0]] for name in seen["verified"]]
    calls = sum((2 if row.in_place_checked else 1) * (2 if row.rooted else 1) for row in rows)
    assert seen["caught"] == [calls, calls]


@LAUNCHERS
def test_gloo_refusals_are_the_same_on_all_ranks_and_quoted(matrix: Matrix, launcher: str) -> None:
    seen = matrix(launcher)
    everything = combinations(tuple(kind.name for kind in DTYPES), tuple(op.name for op in REDOPS))
    assert set(seen["verified"]) | set(seen["refused"]) == everything
    assert seen["refused alike"]
    assert all(reason.startswith(("PyTorch with gloo refuses: ", "PyTorch ")) and len(reason) > 30 for reason in seen["refused"].values())
    assert "Gloo" in seen["refused"]["all_reduce float mulsum"], "mulsum is NCCL's own"


def test_both_launchers_give_the_same_outcome(matrix: Matrix) -> None:
    assert matrix("mpirun") == matrix("torchrun")
