"""Checks and the launch doctor over four hosts by real ssh and real mpirun."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
ALL = ",".join(f"10.77.0.{number}" for number in range(1, 5))


def busbw(hosts: Any, *words: str) -> subprocess.CompletedProcess[str]:
    lab, environment = hosts
    argv = lab.hosts[0].enter(sys.executable, "-m", "busbw", *words)
    return subprocess.run(
        argv,
        env={**environment, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_four_hosts_are_checked_and_launched_over_ssh(ssh_hosts):
    checked = busbw(ssh_hosts, "check", "--hosts", ALL)
    assert checked.stdout.startswith("4 nodes, 4 answered\n"), checked.stdout + checked.stderr
    done = busbw(ssh_hosts, "check", "launch", "--hosts", ALL, "--engine", "mpi", "--limit", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS    all_reduce: all_reduce on 4 ranks: busbw " in done.stdout


def test_host_that_wants_a_password_is_named_with_the_fix(ssh_hosts):
    lab, _ = ssh_hosts
    keys = lab.folder / "authorized_keys"
    config = lab.folder / f"sshd_config.{lab.hosts[2].name}"
    config.write_text(config.read_text().replace(str(keys), "/dev/null"))
    for pid in lab.hosts[2].pids():
        os.kill(pid, 1)  # sshd reads its configuration again
    done = busbw(ssh_hosts, "check", "launch", "--hosts", ALL, "--limit", "25")
    assert done.returncode == 1
    assert (
        "FAIL    ssh: 10.77.0.3 cannot be logged into: exit code 255: root@10.77.0.3: Permission"
        " denied (publickey" in done.stdout
    )
    assert "ssh-copy-id 10.77.0.3" in done.stdout
