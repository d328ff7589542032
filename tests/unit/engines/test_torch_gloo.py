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
    pytest.mark.xdist_group("gloo matrix"),  # which is run once
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
MODULE = Path(__file__).with_name("torch_gloo_rank.py")
# Supported by every PyTorch since 2.4; newer ones may support more.
TYPES = ("int8", "uint8", "int32", "int64", "half", "float", "double")
OPERATORS = ("sum", "prod", "min", "max")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of the matrix. Without a visible GPU the engine uses Gloo."""
    folder = tmp_path_factory.mktemp("job")
    said = jobs.run(
        folder, str(MODULE), ["matrix"], 2, program=jobs.AS_TORCHRUN, CUDA_VISIBLE_DEVICES=""
    )
    answer: dict[str, Any] = jobs.all_well(said)[0]["matrix"]
    return answer


def combinations(types: tuple[str, ...], operators: tuple[str, ...]) -> set[str]:
    return {
        f"{row.name} {kind} {op}".strip()
        for row in COLLECTIVES
        for kind in types
        for op in (operators if row.reduces else ("",))
    }


def test_supported_gloo_combinations_give_correct_data(seen: dict[str, Any]) -> None:
    assert (seen["ranks"], seen["backend"], seen["devices"]) == (2, "gloo", [0, 1])
    assert seen["wrong"] == []
    assert set(seen["verified"]) >= combinations(TYPES, OPERATORS)


def test_wrong_data_is_detected_on_every_rank(seen: dict[str, Any]) -> None:
    rows = [BY_NAME[name.split()[0]] for name in seen["verified"]]
    calls = sum((2 if row.in_place_checked else 1) * (2 if row.rooted else 1) for row in rows)
    assert seen["caught"] == [calls, calls]


def test_gloo_refusals_are_the_same_on_all_ranks_and_quoted(seen: dict[str, Any]) -> None:
    everything = combinations(tuple(kind.name for kind in DTYPES), tuple(op.name for op in REDOPS))
    assert set(seen["verified"]) | set(seen["refused"]) == everything
    assert seen["refused alike"]
    assert all(
        reason.startswith(("PyTorch with gloo refuses: ", "PyTorch ")) and len(reason) > 30
        for reason in seen["refused"].values()
    )
    assert "Gloo" in seen["refused"]["all_reduce float mulsum"], "mulsum is NCCL's own"


def test_ranks_as_of_torchrun_meet_over_gloo(seen: dict[str, Any]) -> None:
    assert (seen["total"], seen["parts"], seen["name"]) == ([3.0, 2.0], [0], "from 0")
