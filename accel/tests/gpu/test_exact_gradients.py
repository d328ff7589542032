"""Coded gradients over NCCL: the scenarios of ../exchange, between two ranks that may share a GPU.
Its kernels are compared with torch in ../unit/exchange/test_exact.py, and exchanges from host
memory in ../exchange/test_host_staging.py, both on GPUs where there are some.
"""

from pathlib import Path

import jobs
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.usefixtures("gpus")]


def test_averages_and_trainings_have_the_bits_of_plain_gradients(tmp_path: Path) -> None:
    scenarios = ["averages", "halves", "trainings", "damaged"]
    results = jobs.run(tmp_path, "exact_gradients", scenarios, 2, 2, ACCEL_DEVICE="cuda")
    for name, report in results[0]["averages"].items():
        assert report["right"] and report["same"], name
        assert report["digest"] == results[1]["averages"][name]["digest"], name
    for result in results:
        for name, report in result["halves"].items():
            assert report["right"] and report["kept"], name
    assert results[0]["averages"]["fp32 narrow"]["coded"] < (
        0.5 * results[0]["averages"]["fp32 narrow"]["plain"]
    )
    weights = {result["trainings"][name][0] for result in results for name in ("coded", "plain")}
    assert len(weights) == 1
    assert all("coded block" in result["damaged"] for result in results)
