"""`busbw overlap` on real ranks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("ranks_are_forks")]
SMALL = ("-np", "2", "-b", "64K", "-e", "256K", "-f", "4", "--rounds", "8", "--no-history")


@pytest.mark.parametrize("load", ["gemm", "alltoall"])
def test_a_collective_beside_a_load_is_measured_verified_and_shown(
    load: str, here: Callable[..., Any], tmp_path: Path
) -> None:
    file, page = tmp_path / "overlap.json", tmp_path / "page.html"
    done = here("busbw", "overlap", *SMALL, "--beside", load, "--json", str(file))
    assert done.code == 0, done.err
    result = json.loads(file.read_bytes())
    assert [row["size_bytes"] for row in result["rows"]] == [1 << 16, 1 << 18]
    for row in result["rows"]:
        for side in (row["collective"], row["load"]):
            assert len(side["alone_s"]) == len(side["beside_s"]) == 8
            assert min(side["alone_s"] + side["beside_s"]) > 0
    assert not result["is_wrong"]
    assert f"AllReduce of bfloat16 beside {load}" in done.out
    assert here("busbw", "show", str(file)).out == done.out
    assert here("busbw", "report", str(file), "--output", str(page)).code == 0


@pytest.mark.parametrize(
    "words",
    [("overlap", "hypercube"), ("overlap", "--beside", "hypercube"), ("backends", "hypercube")],
)
def test_three_ranks_refuse_a_hypercube_that_would_never_end(
    words: tuple[str, ...], here: Callable[..., Any]
) -> None:
    done = here("busbw", *words, "-np", "3", "-b", "1K", "-e", "1K", "--no-history")
    assert done.code == 2
    assert "hypercube on 3 ranks: their number is not a power of two" in done.err


@pytest.mark.parametrize("command", ["overlap", "backends"])
def test_a_network_of_nccl_is_refused_on_cpus(command: str, here: Callable[..., Any]) -> None:
    done = here("busbw", command, "-np", "2", "-b", "1K", "-e", "1K", "--net", "socket")
    assert done.code == 2
    assert "--net socket: PyTorch found no GPU and does not use NCCL" in done.err


def test_ctas_are_refused_on_cpus(here: Callable[..., Any]) -> None:
    done = here("busbw", "overlap", *SMALL, "--max-ctas", "4")
    assert done.code == 2
    assert "--max-ctas 4: the ranks run on CPUs" in done.err


@pytest.mark.parametrize("ctas", ["0", "4,x", "-1", "2000"])
def test_what_is_no_number_of_ctas_is_refused(ctas: str, here: Callable[..., Any]) -> None:
    done = here("busbw", "overlap", f"--max-ctas={ctas}", "--dry-run")
    assert done.code == 2
    assert "is not a number from 1 to 1024" in done.err
