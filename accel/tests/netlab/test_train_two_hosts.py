"""Training over two emulated hosts with two ranks each: the bytes that methods report match the
interface counters.
"""

import json
import os
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HANG_S = 250  # where other processes use all cores
pytestmark = [pytest.mark.netlab, pytest.mark.torch, pytest.mark.timeout(HANG_S + 50)]

SOURCE = str(Path(__file__).parents[2] / "src")
METHODS = "none,torch-fp16,2d,2d+int8,2d+int8+host,2d+topk+ratio=0.1,2d+int8+every=4,2d+exact+host"
if find_spec("torchft"):
    METHODS += ",torchft-diloco"
HEADERS = 1.06  # headers of packets, and gloo's other messages
GRADIENTS = 1_300_456 * 4


def test_reported_bytes_match_interface_counters(
    two_hosts: Any, plugin_library: Path, warm_python: str, tmp_path: Path
) -> None:
    first, second = two_hosts.hosts
    file = tmp_path / "r.json"
    words = shlex.split("train mlp-small --batch-size 2 --warmup 3 --iters 1 --steps 1 --rounds 1")
    words += ["--compare", f"{METHODS},torch-powersgd"]
    words += [
        "--hosts",
        f"{first.address}:2,{second.address}:2",
        "--ifname",
        "10.77.0.0/24",
        "--json",
        str(file),
    ]
    argv = first.enter(warm_python, "-m", "busbw", *words)
    environment = {
        **os.environ,
        **two_hosts.environment(),
        "PYTHONPATH": SOURCE,
        "OMP_NUM_THREADS": "1",
    }
    environment["BUSBW_PLUGIN"] = str(plugin_library)
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    # 3: four ranks on the cores of one machine may contradict each other
    assert done.returncode in (0, 3), done.stderr
    runs = {run["method"]: run for run in json.loads(file.read_text())["training"]["runs"]}
    for name in METHODS.split(","):
        counted, sent = runs[name]["counted"], runs[name]["seen"]
        assert counted <= sent <= counted * HEADERS, (name, counted, sent)
    assert runs["torch-powersgd"]["counted"] is None, "it reports no bytes"
    assert runs["torch-powersgd"]["seen"] < 0.1 * GRADIENTS
    assert runs["none"]["counted"] == pytest.approx(1.5 * GRADIENTS, rel=1e-6), (
        "a ring of four leaves each host once"
    )
    assert runs["2d"]["counted"] == pytest.approx(GRADIENTS, rel=0.01)
    assert runs["2d+int8+host"]["counted"] == runs["2d+int8"]["counted"] < 0.27 * GRADIENTS
    assert runs["2d+int8+every=4"]["counted"] == pytest.approx(
        runs["2d+int8"]["counted"] / 4, rel=0.02
    )
    assert len(runs["2d+int8+every=4"]["steps_s"]) == 1, "the mean of four"
    assert "multiple" in done.stdout, "of the steps that were asked for"
    assert "busbw accel: topk two_d=True ratio=0.1 over 2 x 2 ranks" in done.stderr
