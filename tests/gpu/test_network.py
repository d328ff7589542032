"""NCCL uses the requested network, according to the engine's log and the user's."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
LIMIT_S = 110
RUN = (sys.executable, "-m", "busbw", "run", "all_reduce", "-np", "1", "-e", "64", "--json", "-")


def busbw(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        [*RUN, *words], env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize("engine", ["nccl", "torch"])
@pytest.mark.parametrize("level", ["", "INFO"])
def test_nccl_uses_the_sockets_asked_for(gpus: int, engine: str, level: str) -> None:
    if engine == "torch" and not find_spec("torch"):
        pytest.skip("PyTorch is not installed")
    done = busbw("--engine", engine, "--net", "socket", NCCL_DEBUG=level)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["library"]["network"] == "Socket"
    assert result["environment"]["NCCL_NET"] == "Socket"
    assert "NCCL_DEBUG_FILE" not in result["environment"]
    assert ("Using network Socket" in done.stderr) == bool(level)


def test_a_missing_network_stops_the_run_before_measuring(gpus: int) -> None:
    if Path("/sys/class/infiniband").is_dir() and any(Path("/sys/class/infiniband").iterdir()):
        pytest.skip("this host has InfiniBand or RoCE")
    done = busbw("--engine", "nccl", "--net", "ib")
    assert done.returncode == 3, done.stderr
    assert "with --net ib NCCL uses no other network" in done.stderr
    assert done.stdout == "" or not json.loads(done.stdout)["rows"]
