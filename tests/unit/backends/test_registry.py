"""The rows of backends that other packages have, and the arguments of all."""

import importlib
import inspect
from typing import Any

import pytest

from busbw.backends import registry
from busbw.backends.registry import BY_NAME, Opening
from busbw.core.sweep import SweepSpec
from busbw.launch.control import SoloControl


class Ranks(SoloControl):
    def __init__(self, processes: int) -> None:
        self.processes = processes


def opening(ranks: int, datatype: str = "bfloat16") -> Opening:
    spec = SweepSpec(collective="all_reduce", datatype=datatype)
    return Opening(control=Ranks(ranks), spec=spec, place=(0, 0, 0), copies=True)


@pytest.mark.parametrize("name", ["vllm", "flashinfer"])
def test_a_row_says_which_ranks_and_types_it_has_no_kernels_for(name: str) -> None:
    row = BY_NAME[name]
    assert (row.on_gpus, row.one_host, row.in_place) == (True, True, False)
    assert row.why_not(opening(5)).endswith("GPUs, not for 5")
    assert row.why_not(opening(2, "int8")).endswith("sums float, half, bfloat16, not int8")


class Signatures:
    """A module whose classes tell which of their parameters get which arguments."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        return inspect.signature(getattr(self._module, name)).bind


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in ("nccl", "gloo", "mpi")])
def test_a_row_opens_its_engine_with_arguments_that_it_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "import_module", Signatures)
    bound: Any = BY_NAME[name].open(opening(2))
    assert bound.arguments["place"] == (0, 0, 0)
    assert bound.arguments.get("copies", True) is True
    assert bound.arguments.get("blocks", 0) == 0
