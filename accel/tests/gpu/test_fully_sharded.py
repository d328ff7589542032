"""Fully sharded trainings over NCCL, which use several streams, between two ranks that may share
a GPU.
"""

from pathlib import Path

import jobs
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.usefixtures("gpus")]


def test_gradients_that_add_up_are_those_of_fsdp(tmp_path: Path) -> None:
    scenario = str(Path(__file__).with_name("sharded_sums.py"))
    for result in jobs.run(tmp_path, scenario, ["sums_of_gradients"], 2, 2, ACCEL_DEVICE="cuda"):
        assert result["sums_of_gradients"]["apart"] < 1e-5, result
