"""`busbw horovodrun` on two emulated hosts, whose names resolve to nothing: the ranks find each other and the route between them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.netlab, pytest.mark.torch]

SOURCE = str(Path(__file__).parents[2] / "src")
SCRIPT = """
import torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum).item()
print(f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} of {hvd.local_size()}, {hvd.cross_rank()} of {hvd.cross_size()}: {total}")
hvd.shutdown()
"""


def _run(two_hosts: Any, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    first, second = two_hosts.hosts
    script = folder / "script.py"
    script.write_text(SCRIPT)
    places = f"{first.address}:1,{second.address}:1"
    argv = first.enter(sys.executable, "-m", "busbw", "horovodrun", "-H", places, *words, sys.executable, str(script))
    own = {name: value for name, value in os.environ.items() if not name.endswith("_SOCKET_IFNAME")}
    environment = {**own, **two_hosts.environment(), "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=80, check=False)


@pytest.mark.parametrize("words", [("--network-interfaces", "10.77.0.0/24"), ()], ids=["named", "found"])
def test_a_horovod_script_runs_on_two_hosts(two_hosts: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done = _run(two_hosts, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert said == ["rank 0 of 2, 0 of 1, 0 of 2: 3.0", "rank 1 of 2, 0 of 1, 1 of 2: 3.0"]
