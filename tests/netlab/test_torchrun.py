"""`torchrun -m busbw run` on two emulated hosts, whose names resolve to nothing.

On the first host --ifname names the interface for Gloo; on the second Gloo finds the one that
reaches MASTER_ADDR.
"""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

HANG_S = 250  # where other processes use all cores
pytestmark = [pytest.mark.netlab, pytest.mark.torch, pytest.mark.timeout(HANG_S + 50)]

SOURCE = str(Path(__file__).parents[2] / "src")
TORCHRUN = shlex.split(
    "-m torch.distributed.run --nnodes=2 --nproc-per-node=1 "
    "--master-addr=10.77.0.1 --master-port=29500"
)


def test_ranks_of_two_hosts_measure_together(two_hosts, warm_python, tmp_path):
    file = tmp_path / "r.json"
    words = (
        *shlex.split("run all_reduce --engine torch -b 1K -e 4K --timing classic --iters 3 --json"),
        str(file),
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_SOCKET_IFNAME")
    }
    started = [
        subprocess.Popen(
            host.enter(
                warm_python, *TORCHRUN, f"--node-rank={number}", "-m", "busbw", *words, *ifname
            ),
            env={**environment, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, (host, ifname) in enumerate(
            zip(two_hosts.hosts, (("--ifname", "10.77.0.0/24"), ()), strict=True)
        )
    ]
    try:
        outputs = [process.communicate(timeout=HANG_S) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], outputs
    result = json.loads(file.read_text())
    assert [device["host"] for device in result["world"]["devices"]] == [
        host.name for host in two_hosts.hosts
    ]
    assert [row["size_bytes"] for row in result["rows"]] == [1024, 2048, 4096]
    assert all(
        row[placement]["wrong"] == 0
        for row in result["rows"]
        for placement in ("out_of_place", "in_place")
    )
    assert outputs[1][0] == ""  # only rank 0 prints the table
