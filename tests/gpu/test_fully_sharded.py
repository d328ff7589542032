"""Fully sharded trainings over NCCL, which use several streams, with a rank on each of two GPUs."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "accel"))

import jobs

pytestmark = [pytest.mark.gpu, pytest.mark.torch]


def test_fully_sharded_gradients_that_add_up_are_those_of_fsdp(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip(f"needs 2 GPUs; there are {gpus}")
    job = jobs.run(tmp_path, "trainings", ["fully_sharded"], 2, 2, ACCEL_DEVICE="cuda")
    for result in jobs.all_well(job):
        assert result["fully_sharded"]["sums_apart"] < 1e-6, result
