"""The rows of backends that other packages have."""

from typing import Any

import pytest

from busbw.backends.registry import BY_NAME, Opening
from busbw.core.sweep import SweepSpec
from busbw.launch.control import SoloControl

ROWS = {"vllm": "VllmEngine", "flashinfer": "FlashInferEngine"}


class Ranks(SoloControl):
    def __init__(self, processes: int) -> None:
        self.processes = processes


def opening(ranks: int, datatype: str = "bfloat16") -> Opening:
    spec = SweepSpec(collective="all_reduce", datatype=datatype)
    return Opening(control=Ranks(ranks), spec=spec, place=(0, 0, 0), copies=True)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_which_ranks_and_types_it_has_no_kernels_for(name: str) -> None:
    row = BY_NAME[name]
    assert (row.on_gpus, row.one_host, row.in_place) == (True, True, False)
    assert row.why_not(opening(5)).endswith("GPUs, not for 5")
    assert row.why_not(opening(2, "int8")).endswith("sums float, half, bfloat16, not int8")


@pytest.mark.torch
@pytest.mark.parametrize("name", ROWS)
def test_a_row_opens_its_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from busbw.engines import torch_serving

    def engine(*arguments: Any, copies: bool) -> tuple[int, bool]:
        return len(arguments), copies

    monkeypatch.setattr(torch_serving, ROWS[name], engine)
    assert BY_NAME[name].open(opening(2)) == (3, True)
