"""`busbw backends` on real GPUs: each implementation's sums are right, alone and in graphs."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
FOR_TWO = ["nccl", "nccl-symmetric", "one-shot", "two-shot"]
IN_PACKAGES = {"vllm": ("vllm", "flashinfer"), "flashinfer": ("flashinfer",)}
LARGEST = 1 << 20
WITHOUT_MEMORY = Path(__file__).parents[1] / "unit" / "backends" / "memory_rank.py"


@pytest.mark.parametrize("copies", [False, True])
def test_sums_are_right_alone_and_in_graphs(
    gpus: int, copies: bool, tmp_path: Path, record_property
) -> None:
    if gpus < 2:
        pytest.skip("needs two GPUs")
    file, installed = tmp_path / "backends.json", list(FOR_TWO)
    for name, packages in IN_PACKAGES.items():
        if any(find_spec(package) for package in packages):
            installed.append(name)
    argv = [sys.executable, "-m", "busbw", "backends", "-np", "2", "-f", "4", "-e", str(LARGEST)]
    argv += ["--backends", ",".join(installed), "--no-history", "--json", str(file)]
    done = subprocess.run(
        [*argv, *["--copies"] * copies], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    result = json.loads(file.read_text())
    assert result["left_out"] == {}
    assert result["backends"] == installed
    for row in result["rows"]:
        measured = {(time["backend"], time["mode"]) for time in row["times"]}
        assert measured == {(name, mode) for name in installed for mode in ("eager", "graph")}
        for time in row["times"]:
            assert time["why_not"] == ""
            assert time["cell"]["wrong"] == 0
            name = f"{time['backend']} {time['mode']} of {row['size_bytes']}"
            record_property(name, time["cell"]["time_s"])


@pytest.mark.parametrize("lacking", [*FOR_TWO[1:], *IN_PACKAGES, "nccl-grouped", "nixl"])
def test_memory_that_one_gpu_lacks_leaves_out_that_backend_alone(gpus: int, lacking: str) -> None:
    if gpus < 2:
        pytest.skip("needs two GPUs")
    packages = IN_PACKAGES.get(lacking, ("nixl_cu13", "nixl_cu12") if lacking == "nixl" else ())
    if packages and not any(find_spec(package) for package in packages):
        pytest.skip(f"{lacking} is not installed")
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*argv, str(WITHOUT_MEMORY), lacking, "nccl"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    ranks = [json.loads(line) for line in lines]
    assert len(ranks) == 2
    for rank in ranks:
        assert list(rank["left_out"]) == [lacking]
        assert rank["left_out"][lacking].startswith("rank 1: ")
    assert {backend for rank in ranks for backend in rank["timed"]} == {"nccl"}
