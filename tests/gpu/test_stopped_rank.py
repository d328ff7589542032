"""A rank on a GPU that is stopped is named and the rows before it are kept; NCCL's own RAS
service still answers.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from busbw.host import ras
from busbw.host.process import GONE, state

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]
SOURCE = str(Path(__file__).parents[2] / "src")
LIMIT_S = 12  # long enough to ask NCCL before busbw ends the job


def rows(file: Path) -> dict[str, Any]:
    """The result so far; a run writes its file again after every size."""
    return json.loads(file.read_text()) if file.exists() else {"rows": []}


def test_a_stopped_rank_is_named_with_nccls_report(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip(f"needs 2 GPUs; there are {gpus}")
    file = tmp_path / "result.json"
    words = shlex.split("run all_reduce -b 64M -e 64M --timing classic --run-cycles 0")
    words += ["--limit", str(LIMIT_S), "--json", str(file)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")]),
    }
    run = subprocess.Popen(
        [sys.executable, "-m", "busbw", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not rows(file)["rows"] and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.05)
    measured = rows(file)
    assert measured["rows"], run.communicate(timeout=5)
    victim = measured["world"]["devices"][1]
    healthy = ras.status(ras.address({}), 5)
    os.kill(victim["pid"], signal.SIGSTOP)
    try:
        stopped = ras.status(ras.address({}), 8)
        _, talk = run.communicate(timeout=60)
        deadline = time.monotonic() + 20
    finally:
        run.kill()
    print(healthy, stopped, talk, sep="\n")
    assert "NCCL version" in healthy and "NCCL version" in stopped
    assert str(victim["pid"]) in stopped and str(victim["pid"]) not in healthy, stopped
    assert run.returncode == 3, talk
    assert (
        f"rank {victim['rank']} on {victim['host']} (GPU {victim['index']}, pid {victim['pid']}) is"
        " stopped" in talk
    ), talk
    assert len(rows(file)["rows"]) >= len(measured["rows"])
    while state(victim["pid"]) not in (GONE, "Z") and time.monotonic() < deadline:
        time.sleep(0.05)
    # a driver takes a moment to let go of a GPU's memory
    assert state(victim["pid"]) in (GONE, "Z")
