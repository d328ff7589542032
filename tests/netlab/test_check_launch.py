"""The launch doctor over emulated hosts: each fault is named at its stage, and the command line
that it prints works.
"""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import netlab
import pytest

from busbw.check.doctor import launching

pytestmark = [pytest.mark.netlab, pytest.mark.usefixtures("ranks_are_forks")]

SOURCE = str(Path(__file__).parents[2] / "src")
HOSTS = ("--hosts", "10.77.0.1:1,10.77.0.2:1", "--engine", "mpi")


def environment(lab: Any) -> dict[str, str]:
    return {**lab.environment(), "PYTHONPATH": SOURCE}


def doctor(lab: Any, *words: str) -> subprocess.CompletedProcess[str]:
    return netlab.busbw(lab, "check", "launch", *words, limit_s=280)


def test_healthy_hosts_pass_and_the_printed_command_works(two_hosts):
    done = doctor(two_hosts, *HOSTS, "--limit", "100", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert [(stage["name"], stage["verdict"]) for stage in report["stages"]] == [
        ("ssh", "pass"),
        ("install", "pass"),
        ("names", "pass"),
        ("subnets", "pass"),
        ("tcp", "pass"),
        ("mpirun", "pass"),
        ("mpi", "pass"),
        ("nccl", "skip"),
        ("all_reduce", "pass"),
    ]
    line = shlex.split(report["commands"]["mpirun"])
    argv = two_hosts.hosts[0].enter(*line[: line.index("python")], *launching.NAMES_ITSELF)
    started = subprocess.run(
        argv, env=environment(two_hosts), capture_output=True, text=True, timeout=60, check=False
    )
    assert sorted(started.stdout.split()) == sorted(host.name for host in two_hosts.hosts)


def test_host_that_cannot_be_reached_fails_the_first_stage(two_hosts):
    done = doctor(two_hosts, "--hosts", "10.77.0.1:1,10.77.0.9:1")
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL    ssh: 10.77.0.9 cannot be logged into")
    assert len([line for line in done.stdout.splitlines() if not line.startswith(" ")]) == 1


def on(host: Any, *words: str) -> None:
    subprocess.run(host.enter("ip", *words), check=True, timeout=20)


@pytest.fixture
def two_rails(two_hosts):
    """A second link between the hosts, 10.78.0.0/24, named so that it comes first; the second
    host sends nothing to the first on it.
    """
    first, second = two_hosts.hosts
    names = ("a1", "a2")
    ends = [
        word
        for host, name in zip((first, second), names, strict=True)
        for word in (name, "netns", host.namespace)
    ]
    words = ["ip", "link", "add", *ends[:3], "type", "veth", "peer", *ends[3:]]
    subprocess.run(words, check=True, timeout=20)
    for number, (host, name) in enumerate(zip((first, second), names, strict=True), 1):
        on(host, "addr", "add", f"10.78.0.{number}/24", "dev", name)
        on(host, "link", "set", name, "up")
    on(second, "route", "add", "blackhole", "10.78.0.1/32")
    return two_hosts


def test_two_interfaces_do_not_crash_the_daemons(two_rails):
    for host, second in zip(two_rails.hosts, ("a1", "a2"), strict=True):
        for old, new in ((host.interface, "rail0"), (second, "rail1")):
            on(host, "link", "set", old, "down")
            on(host, "link", "set", old, "name", new, "up")
    report = json.loads(
        doctor(
            two_rails, *HOSTS, "--limit", "10", "--ifname", "rail0,rail1", "--format", "json"
        ).stdout
    )
    assert {stage["name"]: stage["verdict"] for stage in report["stages"]}["tcp"] == "warn"
    assert "died of signal" not in json.dumps(report)


def test_subnets_with_one_address_twice_or_lost_packets_are_not_used(two_rails):
    for host in two_rails.hosts:
        on(host, "link", "add", "docker0", "type", "bridge")
        on(host, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        on(host, "link", "set", "docker0", "up")
    done = doctor(two_rails, *HOSTS, "--limit", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "WARN    subnets: 172.17.0.0/16: several hosts have the same address there" in done.stdout
    )
    assert "fix: name the subnet to use: --ifname 10.77.0.0/24" in done.stdout
    assert "WARN    tcp: hosts connect on 10.77.0.0/24, but not on 10.78.0.0/24" in done.stdout
    assert "10.77.0.1 to 10.77.0.2 on 10.78.0.0/24: no answer" in done.stdout
    assert "btl_tcp_if_include 10.77.0.0/24" in done.stdout


def test_chosen_subnet_on_which_packets_are_lost_fails(two_rails):
    done = doctor(two_rails, *HOSTS, "--limit", "10", "--ifname", "10.78.0.0/24")
    assert done.returncode == 1
    assert "FAIL    tcp: hosts cannot connect to each other on 10.78.0.0/24" in done.stdout
    assert "allow 10.78.0.0/24 in the firewall" in done.stdout


def test_hosts_of_different_subnets_have_none_in_common(two_hosts):
    second = two_hosts.hosts[1]
    subprocess.run(
        second.enter("ip", "addr", "flush", "dev", second.interface), check=True, timeout=20
    )
    subprocess.run(
        second.enter("ip", "addr", "add", "10.99.0.2/24", "dev", second.interface),
        check=True,
        timeout=20,
    )
    done = doctor(two_hosts, *HOSTS)
    assert done.returncode == 1
    assert "FAIL    subnets: the hosts have no subnet in common" in done.stdout
    assert "10.99.0.2/24" in done.stdout
