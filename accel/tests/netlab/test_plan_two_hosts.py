"""`busbw plan` between two emulated hosts whose link is too slow for an exchange in each step."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.netlab import netlab

HANG_S = 250  # where other processes use all cores
pytestmark = [pytest.mark.netlab, pytest.mark.torch, pytest.mark.timeout(HANG_S + 50)]

SOURCE = str(Path(__file__).parents[2] / "src")
# int8 takes 0.4 s and more of the link, a step alone 3 to 100 ms, the latter on a busy machine.
RATE_MBIT, TARGET, EVERY = 25, 0.4, 100
LOCAL = f"int8+every={EVERY}"


def test_local_steps_are_recommended_and_checked_where_no_gradients_reach_the_target(
    two_hosts: Any, warm_python: str, tmp_path: Path
) -> None:
    for host in two_hosts.hosts:
        netlab.limit(host, RATE_MBIT)
    first, second = two_hosts.hosts
    file = tmp_path / "plan.json"
    words = ["plan", "mlp-small", "--batch-size", "2", "--warmup", "1", "--steps", "20"]
    words += ["--iters", "1", "--rounds", "1"]
    words += ["--compare", f"int8,{LOCAL}", "--try", "as-is", "--bucket-mb", "25"]
    words += ["--target", f"{TARGET:.0%}", "--hosts", f"{first.address}:1,{second.address}:1"]
    argv = first.enter(warm_python, "-m", "busbw", *words, "--ifname", "10.77.0.0/24")
    environment = {**os.environ, **two_hosts.environment(), "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [*argv, "--json", str(file)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    contradicting = "no recommendation: figures contradict each other:" in done.stdout
    assert done.returncode == (3 if contradicting else 0), done.stdout + done.stderr
    exchanges = {
        exchange["method"]: exchange
        for exchange in json.loads(file.read_text())["plan"]["exchanges"]
    }
    assert list(exchanges) == ["int8", LOCAL]
    assert exchanges[LOCAL]["local"]["every"] == EVERY
    if not contradicting:  # ranks compete for processors with whatever else runs
        assert f"Settings(method='int8', every={EVERY}), optimizer=optimizer)" in done.stdout
        checked = [name for name, exchange in exchanges.items() if exchange["checked_s"]]
        assert checked == [LOCAL]
