"""Fully sharded trainings over NCCL, which use several streams, with a rank on each of two GPUs."""

from pathlib import Path

import jobs
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.gpu, pytest.mark.torch]


def test_gradients_that_add_up_are_those_of_fsdp(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip(f"needs 2 GPUs; there are {gpus}")
    scenario = str(Path(__file__).with_name("sharded_sums.py"))
    for result in jobs.all_well(
        jobs.run(tmp_path, scenario, ["sums_of_gradients"], 2, 2, ACCEL_DEVICE="cuda")
    ):
        assert result["sums_of_gradients"]["apart"] < 1e-5, result
