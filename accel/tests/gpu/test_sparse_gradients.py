"""Sparse gradients over NCCL, which has no collective for them: the scenarios of ../exchange,
between two ranks that may share a GPU.
"""

from pathlib import Path

import jobs
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

SCENARIOS = ["ways", "gradients", "trainings"]
pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.usefixtures("gpus")]


def test_ranks_train_as_with_dense_gradients(tmp_path: Path) -> None:
    results = jobs.run(
        tmp_path,
        "sparse_gradients",
        [*SCENARIOS, "sums_of_halves", "refused", "alone"],
        2,
        2,
        ACCEL_DEVICE="cuda",
    )
    first = results[0]["ways"] | results[0]["gradients"]
    for name, report in first.items():
        assert report["rows"] and report["same"] and report["error"] < 1e-2, name
        assert report["digest"] == (results[1]["ways"] | results[1]["gradients"])[name]["digest"], (
            name
        )
    for name, (digest, difference) in results[0]["trainings"]["apart"].items():
        assert digest == results[1]["trainings"]["apart"][name][0], name
        assert difference < (2e-2 if name == "int8" else 1e-5), name
    assert (
        results[0]["sums_of_halves"]
        and len(results[0]["refused"]) == 2
        and results[0]["alone"] < 1e-6
    )
