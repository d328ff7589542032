"""NIXL moves scattered blocks between two ranks on CPUs, each wait has a limit, and its errors are
named.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jobs
import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),  # which imports PyTorch for all jobs of ranks
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
MODULE = Path(__file__).with_name("torch_nixl_rank.py")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank returned by function."""
    pytest.importorskip("nixl_cu13", reason="NIXL is not installed: pip install nixl-cu13")
    functions = ["reads", "writes", "waits", "refused", "closed"]
    return [
        output
        for function in functions
        for output in jobs.run(
            tmp_path_factory.mktemp(function),
            str(MODULE),
            [function],
            2,
            program=jobs.AS_TORCHRUN,
            CUDA_VISIBLE_DEVICES="",
        )
    ]


def of(outcome: list[dict[str, Any]], function: str) -> list[Any]:
    return [rank[function] for rank in outcome if function in rank]


@pytest.mark.parametrize("function", ["reads", "writes"])
def test_blocks_arrive_and_wrong_data_is_found(
    function: str, outcome: list[dict[str, Any]]
) -> None:
    for rank in of(outcome, function):
        assert rank["wrong"] == [0] * 6
        assert rank["corrupt"] == [1, 0]
        assert rank["library"].endswith(" UCX")


def test_a_rank_whose_neighbor_does_not_move_stops_waiting(outcome: list[dict[str, Any]]) -> None:
    said, nothing = of(outcome, "waits")
    first, second = said
    assert first.startswith("NIXL on rank 0 on ")
    assert "READ 1" in first
    assert first.endswith("after 1 s")
    assert second == first
    assert nothing == []


def test_the_process_group_ends_though_memory_cannot_be_released(
    outcome: list[dict[str, Any]],
) -> None:
    for said, is_left in of(outcome, "closed"):
        assert "deregister_memory: " in said
        assert "it is in use" in said
        assert not is_left


def test_an_error_has_the_status_of_nixl(outcome: list[dict[str, Any]]) -> None:
    for said in of(outcome, "refused"):
        assert "initialize_xfer: nixlNotFoundError: NIXL_ERR_NOT_FOUND" in said


def test_without_nixl_the_package_for_this_pytorch_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from busbw.engines import torch_nixl

    monkeypatch.setattr(torch_nixl, "find_spec", lambda _: None)
    for cuda, package in (("12.8", "nixl-cu12"), ("13.0", "nixl-cu13"), (None, "nixl-cu13")):
        monkeypatch.setattr(torch_nixl.torch.version, "cuda", cuda)
        assert torch_nixl.why_missing().endswith(f": pip install {package}")
