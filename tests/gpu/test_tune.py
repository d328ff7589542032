"""NCCL asks the tuner plugin, and runs what a tuning steers it to."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from busbw.core.tuner_table import parse

pytestmark = pytest.mark.gpu
LIMIT_S = 300


def test_a_tuning_of_two_gpus(gpus: int, plugin_library: Path, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip("a tuning needs two GPUs")
    file = tmp_path / "table"
    words = (
        *shlex.split(
            "all_reduce -np 2 -b 64K -e 1M --max-time 2 --no-settings --format json --output"
        ),
        str(file),
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "BUSBW_PLUGIN": str(plugin_library),
    }
    line = [sys.executable, "-m", "busbw", "tune", *words]
    done = subprocess.run(
        line, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [size["size_bytes"] for size in report["sizes"]] == [64 << 10, 256 << 10, 1 << 20]
    assert all(size["candidates"] > 3 and size["own_s"] > 0 for size in report["sizes"]), (
        "NCCL allows Ring and Tree over NVLink and PCIe"
    )
    assert parse(file.read_text(), str(file)).texts_of("state") == [
        "all_reduce checked with new ranks"
    ]
