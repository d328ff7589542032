"""The torch engine on CPUs: what PyTorch's Gloo supports gives correct data, and the rest is
refused with a reason, without a hang.

torch_gloo_rank.py runs the table on two ranks as of torchrun, whose control channel is Gloo. Tests
of `busbw replay` have ranks of mpirun.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jobs
import pytest

from busbw.core.collectives import BY_NAME, COLLECTIVES
from busbw.core.dtypes import DTYPES
from busbw.core.redops import REDOPS

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),  # which imports PyTorch for all jobs of ranks
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
MODULE = Path(__file__).with_name("torch_gloo_rank.py")
# Supported by every PyTorch since 2.4; newer ones may support more.
TYPES = ("int8", "uint8", "int32", "int64", "half", "float", "double")
OPERATORS = ("sum", "prod", "min", "max")


@pytest.fixture(scope="module")
def matrix_result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of the matrix. Without a visible GPU the engine uses Gloo."""
    folder = tmp_path_factory.mktemp("job")
    rank_outputs = jobs.run(
        folder, str(MODULE), ["matrix"], 2, program=jobs.AS_TORCHRUN, CUDA_VISIBLE_DEVICES=""
    )
    answer: dict[str, Any] = rank_outputs[0]["matrix"]
    return answer


def combinations(types: tuple[str, ...], operators: tuple[str, ...]) -> set[str]:
    return {
        f"{row.name} {kind} {op}".strip()
        for row in COLLECTIVES
        for kind in types
        for op in (operators if row.reduces else ("",))
    }


def test_supported_gloo_combinations_give_correct_data(matrix_result: dict[str, Any]) -> None:
    assert (matrix_result["ranks"], matrix_result["backend"], matrix_result["devices"]) == (
        2,
        "gloo",
        [0, 1],
    )
    assert matrix_result["wrong"] == []
    assert set(matrix_result["verified"]) >= combinations(TYPES, OPERATORS)


def test_wrong_data_is_detected_on_every_rank(matrix_result: dict[str, Any]) -> None:
    rows = [BY_NAME[name.split()[0]] for name in matrix_result["verified"]]
    calls = sum((2 if row.in_place_checked else 1) * (2 if row.rooted else 1) for row in rows)
    assert matrix_result["caught"] == [calls, calls]


def test_gloo_refusals_are_the_same_on_all_ranks_and_quoted(matrix_result: dict[str, Any]) -> None:
    everything = combinations(tuple(kind.name for kind in DTYPES), tuple(op.name for op in REDOPS))
    assert set(matrix_result["verified"]) | set(matrix_result["refused"]) == everything
    assert matrix_result["refused alike"]
    assert all(
        reason.startswith(("PyTorch with gloo refuses: ", "PyTorch ")) and len(reason) > 30
        for reason in matrix_result["refused"].values()
    )
    assert "Gloo" in matrix_result["refused"]["all_reduce float mulsum"], "mulsum is NCCL's own"


def test_ranks_as_of_torchrun_meet_over_gloo(matrix_result: dict[str, Any]) -> None:
    assert (matrix_result["total"], matrix_result["parts"], matrix_result["name"]) == (
        [3.0, 2.0],
        [0],
        "from 0",
    )
