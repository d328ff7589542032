"""The recorder inside a rank: each of its files is written also without the other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
RECORDER = Path(__file__).parents[3] / "src" / "busbw" / "pattern" / "recorder"
LIMIT_S = 120
TRAINING = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", init_method="file://{store}", rank=0, world_size=1)
for name in {removed}:
    if hasattr(torch._C._distributed_c10d, name):
        delattr(torch._C._distributed_c10d, name)
model = DistributedDataParallel(torch.nn.Linear(4, 3))
for _ in range(5):
    model(torch.ones(2, 4)).sum().backward()
"""


def test_steps_are_kept_where_pytorch_has_no_dump_of_its_calls(tmp_path: Path) -> None:
    removed = ["_dump_fr_trace", "_dump_nccl_trace"]
    code = TRAINING.format(store=tmp_path / "store", removed=removed)
    environment = {
        **os.environ,
        "PYTHONPATH": str(RECORDER),
        "BUSBW_CAPTURE": str(tmp_path),
        "BUSBW_CAPTURE_STEPS": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "3 steps are recorded" in done.stderr
    steps = json.loads((tmp_path / "rank_0.ddp").read_text())
    assert (steps["rank"], steps["world"], len(steps["steps_us"])) == (0, 1, 3)
    assert sorted(map(tuple, steps["shapes"][0])) == [(3,), (3, 4)]
    assert not (tmp_path / "rank_0.fr").exists()
