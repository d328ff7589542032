"""Sparse gradients over NCCL, which has no collective for them: the scenarios of tests/accel,
with a rank on each of two GPUs.
"""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "accel"))

import jobs

SCENARIOS = ["ways", "gradients", "trainings"]
pytestmark = [pytest.mark.gpu, pytest.mark.torch]


def test_ranks_train_as_with_dense_gradients(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip(f"needs 2 GPUs; there are {gpus}")
    said = jobs.all_well(
        jobs.run(
            tmp_path,
            "sparse_gradients",
            [*SCENARIOS, "sums_of_halves", "refused", "alone"],
            2,
            2,
            ACCEL_DEVICE="cuda",
        )
    )
    first = said[0]["ways"] | said[0]["gradients"]
    for name, found in first.items():
        assert found["rows"] and found["same"] and found["error"] < 1e-2, name
        assert found["digest"] == (said[1]["ways"] | said[1]["gradients"])[name]["digest"], name
    for name, (digest, apart) in said[0]["trainings"]["apart"].items():
        assert digest == said[1]["trainings"]["apart"][name][0], name
        assert apart < (2e-2 if name == "int8" else 1e-5), name
    assert said[0]["sums_of_halves"] and len(said[0]["refused"]) == 2 and said[0]["alone"] < 1e-6
