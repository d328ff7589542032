"""Four hosts with sshd and real mpirun, each fault in turn: it is named with its place."""

import os
import subprocess
from pathlib import Path
from typing import Any

import netlab
import pytest

pytestmark = [pytest.mark.netlab, pytest.mark.usefixtures("ranks_are_forks")]

SOURCE = str(Path(__file__).parents[2] / "src")
NAMES = ",".join(f"10.77.0.{number}" for number in range(1, 5))
LAUNCH = ("check", "launch", "--hosts", NAMES, "--engine", "mpi", "--limit", "25")
BLOCKED = """table inet busbw_test {
  chain input {
    type filter hook input priority 0; policy accept;
    ct state established,related accept
    tcp dport 1024-65535 drop
  }
}"""


def on(host: Any, *words: str, stdin: str = "") -> None:
    subprocess.run(host.enter(*words), check=True, timeout=20, input=stdin, text=True)


def on_switch(lab: Any, *words: str) -> None:
    subprocess.run(["ip", "-n", lab.switch, *words], check=True, timeout=20)


def test_interface_that_other_hosts_lack_is_named(ssh_hosts):
    lab, _ = ssh_hosts
    own = lab.hosts[0].interface
    done = netlab.busbw(ssh_hosts[0], *LAUNCH, "--ifname", own)
    assert done.returncode == 1
    assert (
        f"FAIL    subnets: --ifname {own}: no such interface with an address on 10.77.0.2,"
        " 10.77.0.3, 10.77.0.4" in done.stdout
    )


def test_blocked_ports_are_named_with_the_host(ssh_hosts):
    lab, _ = ssh_hosts
    if os.system("command -v nft >/dev/null"):
        pytest.skip("no nft: make test-tools")
    on(lab.hosts[2], "nft", "-f", "-", stdin=BLOCKED)
    done = netlab.busbw(ssh_hosts[0], *LAUNCH[:-1], "12")
    assert done.returncode == 1
    assert "PASS    ssh" in done.stdout
    assert "FAIL    tcp: hosts cannot connect to each other on 10.77.0.0/24" in done.stdout
    lines = [
        line.strip()
        for line in done.stdout.splitlines()
        if " on 10.77.0.0/24: " in line and "seen:" in line
    ]
    assert len(lines) == 3 and all("to 10.77.0.3 on" in line for line in lines), done.stdout
    assert all(
        line.endswith("no answer: packets are dropped, perhaps by a firewall") for line in lines
    )


def test_line_of_a_hosts_file_is_named(here, two_hosts, tmp_path):
    file = tmp_path / "hosts"
    file.write_text("10.77.0.1 slots=1\n10.77.0.2 slats=1\n")
    for words in (("check", "launch"), ("check",), ("link",)):
        done = here(two_hosts, *words, "--hostfile", str(file))
        assert done.returncode == 2
        assert f"error: --hostfile {file}, line 2: slats=1 is not a setting" in done.stderr


def small_switch(lab: Any) -> None:
    """The switch port of the third host passes 1500 bytes.

    Segments are made by each host's kernel, so that none is larger than its MTU.
    """
    on_switch(lab, "link", "set", "p2", "mtu", "1500")
    for host in lab.hosts:
        on(host, "ip", "link", "set", host.interface, "gso_max_segs", "1")


def test_ssh_that_stops_at_large_packets_is_explained(ssh_hosts):
    small_switch(ssh_hosts[0])
    done = netlab.busbw(ssh_hosts[0], *LAUNCH[:-1], "8")
    assert done.returncode == 1
    assert "FAIL    ssh: 10.77.0.3: sshd answers ('SSH-2.0-OpenSSH_" in done.stdout
    assert "the path may drop large packets" in done.stdout


def test_large_packets_that_are_lost_are_named_with_the_host(four_hosts):
    small_switch(four_hosts)
    done = netlab.busbw(four_hosts, *LAUNCH)
    assert done.returncode == 1
    assert "FAIL    tcp: large packets are lost on 10.77.0.0/24" in done.stdout
    lines = [
        line
        for line in done.stdout.splitlines()
        if "small packets pass and large ones are lost" in line
    ]
    assert lines and all("10.77.0.3" in line for line in lines), done.stdout


def test_throttled_host_is_named(ssh_hosts):
    import netlab

    lab, _ = ssh_hosts
    for host, rate in zip(lab.hosts, (400, 400, 100, 400), strict=True):
        netlab.limit(host, rate)
    done = netlab.busbw(ssh_hosts[0], "link", "--hosts", NAMES, "--seconds", "0.5")
    assert done.returncode == 1
    assert (
        f"FAIL    10.77.0.3 ({lab.hosts[2].name}) is slow on 10.77.0.0/24: it sends " in done.stdout
    )
