"""`busbw run --hosts` over two emulated hosts with the real mpirun: the data crosses the
network, and the result lists the hosts.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import netlab
import pytest

pytestmark = [pytest.mark.netlab, pytest.mark.usefixtures("ranks_are_forks")]

SOURCE = str(Path(__file__).parents[2] / "src")
NETWORK = "10.77.0.0/24"


def transmitted(host: Any) -> int:
    # /sys belongs to the namespace that mounted it; /proc/net is the reader's own.
    lines = subprocess.run(
        host.enter("cat", "/proc/net/dev"), capture_output=True, text=True, timeout=20, check=True
    ).stdout.splitlines()
    counters = next(
        line.partition(":")[2].split()
        for line in lines
        if line.strip().startswith(f"{host.interface}:")
    )
    return int(counters[8])


def test_a_two_host_sweep_is_verified_over_the_network(two_hosts, tmp_path):
    first, second = two_hosts.hosts
    before = transmitted(second)
    file, settings = tmp_path / "r.json", tmp_path / "busbw.toml"
    settings.write_text(
        f'hosts = ["10.77.0.1:2", "10.77.0.2:2"]\nifname = "{NETWORK}"\nengine = "mpi"\n'
    )
    done = netlab.busbw(
        two_hosts,
        "run",
        "all_reduce",
        "--config",
        str(settings),
        "-b",
        "1K",
        "-e",
        "1M",
        "-f",
        "32",
        "--json",
        str(file),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    assert result["argv"][-5:-1] == ["10.77.0.1:2,10.77.0.2:2", "--ifname", NETWORK, "--engine"]
    assert [device["host"] for device in result["world"]["devices"]] == [first.name] * 2 + [
        second.name
    ] * 2
    assert [host["hostname"] for host in result["topology"]["hosts"]] == [first.name, second.name]
    assert len(result["rows"]) == 3
    assert all(
        row[placement]["wrong"] == 0
        for row in result["rows"]
        for placement in ("out_of_place", "in_place")
    )
    # A ring or tree over two hosts moves at least one copy of every iteration's data out of each of
    # them.
    moved = sum(row["size_bytes"] * row["iters"] * 2 for row in result["rows"])
    assert transmitted(second) - before > moved / 2
