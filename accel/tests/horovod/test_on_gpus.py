"""Operations on tensors of two GPUs: see `hvd_on_gpus`."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import hvd_jobs
import pytest
import torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("warm_python"),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize(
    "name",
    [
        "results_may_be_read_at_once",
        "memory_of_a_result_is_not_reused_while_it_is_read",
        "scaling_and_splits_equal_those_of_horovod",
    ],
)
def test_two_gpus(name, tmp_path):
    for result in hvd_jobs.run(tmp_path, "hvd_on_gpus", [name], 2, ACCEL_DEVICE="cuda"):
        assert result["code"] == 0, (result.get(name), result["stderr"][-3000:])


def test_a_killed_rank_is_replaced_and_the_training_goes_on(tmp_path):
    script = str(Path(__file__).with_name("elastic_on_gpus.py"))
    words = [
        *shlex.split("horovodrun -np 2 --min-np 2 --max-np 2 -H localhost:3"),
        sys.executable,
        script,
        str(tmp_path),
    ]
    line, environment = (
        [sys.executable, "-m", "busbw", *words],
        {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    done = subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("end ")) == [
        f"end {rank} 2 60 True cuda" for rank in (0, 1)
    ]
    assert "was killed by signal 9" in done.stderr
