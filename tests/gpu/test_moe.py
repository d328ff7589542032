"""`busbw moe` on real GPUs: operations wait in held queues, every element is right, and no exchange
is faster than its bound.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


def measured(gpus: int, options: str, file: Path) -> dict[str, Any]:
    """The result of a run on all GPUs."""
    argv = [sys.executable, "-m", "busbw", "moe", "-np", str(gpus), *options.split()]
    done = subprocess.run(
        [*argv, "--max-time", "1", "--no-history", "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    result: dict[str, Any] = json.loads(file.read_text())
    return result


def within_bound(row: dict[str, Any]) -> bool:
    """Whether an exchange is not faster than the links."""
    return row["bound_s"] is None or row["phases"]["exchange"]["time_s"] > 0.98 * row["bound_s"]


@pytest.mark.parametrize("routing", ["uniform", "hot:0.9"])
def test_dispatch_and_combine_are_right_and_within_the_bound(
    gpus: int, routing: str, tmp_path: Path, record_property
) -> None:
    if gpus < 2:
        pytest.skip("needs two GPUs")
    options = f"--tokens 128:2048 --hidden 7168 --experts {8 * gpus} --routing {routing}"
    result = measured(gpus, f"{options} --backends alltoallv", tmp_path / "moe.json")
    assert result["library"]["versions"]["backend"] == "nccl"
    assert len(result["rows"]) == 10
    for row in result["rows"]:
        assert row["wrong"] == 0
        exchange_s = row["phases"]["exchange"]["time_s"]
        record_property(f"{row['direction']} of {row['tokens']}", exchange_s)
        assert within_bound(row)


@pytest.mark.skipif(find_spec("deep_ep") is None, reason="DeepEP is not installed")
def test_deepep_moves_the_same_rows_beside_the_alltoallv(gpus: int, tmp_path: Path) -> None:
    if gpus not in (2, 4, 8):
        pytest.skip("needs 2, 4 or 8 GPUs")
    options = f"--tokens 128:1024 --experts {8 * gpus} --routing zipf:1.0"
    result = measured(gpus, f"{options} --backends alltoallv,deepep", tmp_path / "moe.json")
    assert result["left_out"] == {}
    assert len(result["rows"]) == 16
    wire: dict[tuple[int, str], set[int]] = {}
    for row in result["rows"]:
        assert row["wrong"] == 0
        assert within_bound(row)
        wire.setdefault((row["tokens"], row["direction"]), set()).add(row["wire_bytes"])
    assert all(len(stated) == 1 for stated in wire.values())
    fused = next(row for row in result["rows"] if row["backend"] == "deepep")
    assert list(fused["phases"]) == ["exchange", "unpack"]
    assert result["library"]["versions"]["deepep"]


def test_size_that_deepep_does_not_take_leaves_the_alltoallv(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip("needs two GPUs")
    options = "--tokens 64 --hidden 8200 --experts 8 --backends deepep,alltoallv"
    result = measured(2, options, tmp_path / "moe.json")
    assert list(result["left_out"]) == ["deepep"]
    assert {row["backend"] for row in result["rows"]} == {"alltoallv"}
