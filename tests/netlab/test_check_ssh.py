"""Checks and the launch doctor over four hosts by real ssh and real mpirun."""

import os
import subprocess
import sys
from pathlib import Path

import netlab
import pytest

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
ALL = ",".join(f"10.77.0.{number}" for number in range(1, 5))


def test_four_hosts_are_checked_and_launched_over_ssh_and_another_mtu_is_named(ssh_hosts):
    lab, _ = ssh_hosts
    third = lab.hosts[2]
    smaller = third.enter("ip", "link", "set", third.interface, "mtu", "1500")
    subprocess.run(smaller, check=True, timeout=20)
    checked = netlab.busbw(ssh_hosts[0], "check", "--hosts", ALL)
    assert checked.stdout.startswith("4 nodes, 4 answered"), checked.stdout + checked.stderr
    (line,) = [line for line in checked.stdout.splitlines() if "MTU" in line]
    assert f"1500 on {third.name}; 9000 on the other 3" in line
    hosts = "root@10.77.0.[1-2] root@10.77.0.3,root@10.77.0.4"
    done = netlab.busbw(ssh_hosts[0], "check", "launch", "--hosts", hosts, "--limit", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "WARN    subnets: MTUs differ on 10.77.0.0/24: root@10.77.0.3 differs from the others"
        in done.stdout
    )
    assert f"root@10.77.0.3: {third.interface} has MTU 1500, 3 of 4 hosts have 9000" in done.stdout
    assert "PASS    tcp" in done.stdout, "TCP takes the smaller of both MTUs"
    assert "SKIP    nccl: no NVIDIA GPU on any host" in done.stdout
    assert "PASS    all_reduce: all_reduce on 4 ranks: busbw " in done.stdout
    assert "NCCL_SOCKET_IFNAME" not in done.stdout


def test_bare_names_of_commands_work_with_the_users_mpirun(ssh_hosts, tmp_path):
    lab, environment = ssh_hosts
    subprocess.run(
        [sys.executable, "-m", "busbw", "compat", str(tmp_path)],
        env={**environment, "PYTHONPATH": SOURCE},
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    path = f"{tmp_path}:{Path(sys.executable).parent}:{environment['PATH']}"
    names = ",".join(host.name for host in lab.hosts[:2])
    launch = ("mpirun", "--allow-run-as-root", "-x", "PATH", "-x", "PYTHONPATH", "--host", names)
    own = ("busbw", "run", "all_reduce", "--timing", "classic", "--brief")
    for words, said in (
        (own, "all_reduce on 2 ranks: busbw "),
        (("all_reduce_perf_mpi",), "# Out of bounds values : 0 OK"),
    ):
        done = subprocess.run(
            lab.hosts[0].enter("env", f"PATH={path}", *launch, *words, "-b", "1K", "-e", "1K"),
            env={**environment, "PYTHONPATH": SOURCE},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert said in done.stdout


def test_host_that_wants_a_password_is_named_with_the_fix(ssh_hosts):
    lab, _ = ssh_hosts
    keys = lab.folder / "authorized_keys"
    config = lab.folder / f"sshd_config.{lab.hosts[2].name}"
    config.write_text(config.read_text().replace(str(keys), "/dev/null"))
    for pid in lab.hosts[2].pids():
        os.kill(pid, 1)  # sshd reads its configuration again
    done = netlab.busbw(ssh_hosts[0], "check", "launch", "--hosts", ALL, "--limit", "25")
    assert done.returncode == 1
    assert (
        "FAIL ssh: 10.77.0.3 cannot be logged into: exit code 255: root@10.77.0.3: Permission"
        " denied (publickey" in " ".join(done.stdout.split())
    )
    assert "ssh-copy-id 10.77.0.3" in done.stdout
