"""`busbw horovodrun` on two emulated hosts, whose names resolve to nothing: the ranks find each
other and the route between them.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.netlab, pytest.mark.torch]

HANG_S = 200
SOURCE = str(Path(__file__).parents[2] / "src")
SCRIPT = """
import torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum).item()
print(f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} of {hvd.local_size()}, {hvd.cross_rank()} of {hvd.cross_size()}: {total}")
hvd.shutdown()
"""
NAMED = """
import os
from busbw.host import addresses
from busbw.launch import interfaces
interfaces.set_interface_variables(os.environ)  # as hvd.init does
print("rank", os.environ["OMPI_COMM_WORLD_RANK"], addresses.local()[os.environ["GLOO_SOCKET_IFNAME"]])
"""


def _run(two_hosts: Any, folder: Path, source: str, *words: str) -> list[str]:
    first, second = two_hosts.hosts
    script = folder / "script.py"
    script.write_text(source)
    places = f"{first.address}:1,{second.address}:1"
    argv = first.enter(
        sys.executable,
        "-m",
        "busbw",
        "horovodrun",
        "-H",
        places,
        *words,
        sys.executable,
        str(script),
    )
    own = {name: value for name, value in os.environ.items() if not name.endswith("_SOCKET_IFNAME")}
    environment = {**own, **two_hosts.environment(), "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))


@pytest.mark.timeout(HANG_S + 60)
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_horovod_script_runs_on_two_hosts(two_hosts: Any, tmp_path: Path) -> None:
    lines = _run(two_hosts, tmp_path, SCRIPT)
    assert lines == ["rank 0 of 2, 0 of 1, 0 of 2: 3.0", "rank 1 of 2, 0 of 1, 1 of 2: 3.0"]


def test_ranks_get_the_interface_of_the_network_that_is_named(
    two_hosts: Any, tmp_path: Path
) -> None:
    lines = _run(two_hosts, tmp_path, NAMED, "--network-interfaces", "10.77.0.0/24")
    assert lines == [f"rank {rank} {host.address}/24" for rank, host in enumerate(two_hosts.hosts)]
