"""A slow link is distinguished from a late rank: four emulated hosts, one of which sends at 100
Mbit/s.
"""

import json
import shlex
from pathlib import Path
from typing import Any

import netlab
import pytest

pytestmark = pytest.mark.netlab


def test_a_slow_link_names_its_host_and_no_late_rank(
    four_hosts_one_slow: Any, tmp_path: Path
) -> None:
    lab, file = four_hosts_one_slow, tmp_path / "result.json"
    hosts = ",".join(f"{host.address}:1" for host in lab.hosts)
    words = shlex.split("run all_reduce --engine mpi -b 1M -e 1M --max-time 0.5")
    words += ["--hosts", hosts, "--ifname", "10.77.0.0/24", "--json", str(file)]
    done = netlab.busbw(lab, *words)
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text(encoding="utf-8"))
    messages = {finding["id"]: finding["message"] for finding in result["findings"]}
    assert messages.get("slow_link", "").startswith(
        f"the link of host {lab.hosts[2].name} is slow: all its pairs are far below the others"
    ), done.stdout
    assert "late_rank" not in messages, done.stdout
    slow = [link for link in result["links"] if 2 in (link["a"], link["b"])]
    assert len(result["links"]) == 6
    assert max(link["bandwidth"] for link in slow) < 20e6, "100 Mbit/s are 12.5 MB/s"
