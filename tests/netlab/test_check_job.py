"""`busbw check job` over emulated hosts: RAS on the first names a rank of the second, whose port
is down or whose network loses packets.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.netlab

ROOT = Path(__file__).parents[1]
SERVICE = ROOT / "unit" / "job" / "ras_service.py"
COUNTS = {"Broadcast": 0, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0}
FLAGS = {
    "init_state": 0,
    "async_error": 0,
    "finalize_called": False,
    "destroy_flag": False,
    "abort_flag": False,
}
# Data over one connection for some seconds; packets that are lost are sent again.
SEND = """
import socket, sys, threading, time
def take(listening):
    one, _ = listening.accept()
    while one.recv(1 << 16): pass
if sys.argv[1] == "take":
    with socket.create_server(("10.77.0.2", 7000)) as listening: print("ready", flush=True); take(listening)
else:
    end = time.monotonic() + 60
    with socket.create_connection(("10.77.0.2", 7000), timeout=30) as one:
        while time.monotonic() < end: one.sendall(bytes(1 << 14)); time.sleep(0.002)
"""


@contextlib.contextmanager
def ras(lab: Any, pid: int) -> Iterator[None]:
    """RAS on the first host: rank 0 is there, and rank 1 on the second host does not answer."""
    where = [
        {
            "rank": n,
            "host": f"10.77.0.{n + 1}",
            "pid": (os.getpid(), pid)[n],
            "cuda_dev": 0,
            "nvml_dev": 0,
        }
        for n in range(2)
    ]
    first_rank = where[0] | {"status": FLAGS, "collective_counts": COUNTS | {"AllReduce": 9}}
    second_rank = where[1] | {"status": {"unresponsive": True, "considered_dead": False}}
    comm = {"hash": "0xabc", "size": 2, "ranks": [first_rank], "missing_ranks": [second_rank]}
    report = json.dumps({"nccl_version": "2.29.1", "communicators": [comm]}, indent=1)
    words = lab.hosts[0].enter(sys.executable, str(SERVICE))
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(report) + "\n")
        process.stdin.flush()
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


@pytest.fixture
def check(here: Callable[..., Any]) -> Callable[..., Any]:
    """check(lab, ...) calls `busbw check job` in the network of the first host, whose RAS it asks."""

    def call(lab: Any, *words: str) -> Any:
        with lab.hosts[0].network():
            return here(lab, "check", "job", *words)

    return call


def test_the_port_that_is_down_on_the_ranks_host_is_named(check, two_hosts):
    """The hosts are those that RAS names: they are not given."""
    second = two_hosts.hosts[1]
    script = (
        two_hosts.agent.read_text()
        .replace("--uts", "--uts --mount")
        .replace("hostname $name;", "hostname $name; mount -t sysfs s /sys;")
    )
    two_hosts.agent.write_text(script)
    subprocess.run(
        ["ip", "-n", second.namespace, "link", "set", second.interface, "down"],
        check=True,
        timeout=20,
    )
    with subprocess.Popen(["sleep", "60"]) as process, ras(two_hosts, process.pid):
        done = check(two_hosts, "--interval", "1")
        process.kill()
    assert done.returncode == 1, done.stdout + done.stderr
    line = done.stdout.splitlines()[0]
    assert (
        f"rank 1 (pid {process.pid}, 10.77.0.2, GPU 0) does not answer NCCL's RAS; 1 other rank"
        " launched AllReduce 9" in line
    )
    assert line.endswith(
        f"port {second.interface} of 10.77.0.2: the port is down (its state is not up)"
    )


def test_a_link_that_goes_down_meanwhile_is_named(check, two_hosts):
    first, second = two_hosts.hosts
    script = (
        two_hosts.agent.read_text()
        .replace("--uts", "--uts --mount")
        .replace("hostname $name;", "hostname $name; mount -t sysfs s /sys;")
    )
    two_hosts.agent.write_text(script)
    with subprocess.Popen(["sleep", "60"]) as process, ras(two_hosts, process.pid):
        way = f"ip -n {first.namespace} link set {first.interface}"
        # whenever the first reading is
        with subprocess.Popen(
            ["sh", "-c", f"while sleep 1; do {way} down; {way} up; done"]
        ) as flapping:
            done = check(
                two_hosts, "--hosts", "10.77.0.2", "--ras", "127.0.0.1:28028", "--interval", "4"
            )
            flapping.kill()
        process.kill()
    line = done.stdout.splitlines()[0]
    port = (
        f"port {second.interface} of 10.77.0.2: the link went down: cable, optic, or the other end"
        " (carrier_down_count "
    )
    assert port in line and line.endswith("/s)"), line


def test_a_host_that_does_not_answer_is_named(check, two_hosts):
    with ras(two_hosts, 1):
        two_hosts.agent.write_text(two_hosts.agent.read_text().replace("10.77.0.2|", "10.77.0.9|"))
        done = check(two_hosts, "--interval", "0.5")
    assert done.returncode == 1
    assert (
        "host 10.77.0.2 does not respond: exit code 255: ssh: connect to host 10.77.0.2 port 22: No"
        " route to host" in done.stdout.splitlines()[0]
    )


@pytest.mark.skipif(shutil.which("nft") is None, reason="no nft: make test-tools")
def test_lost_packets_are_seen_as_segments_resent(check, two_hosts):
    first, second = two_hosts.hosts
    # Lost behind the sender: what its own queue drops, some kernels do not count as sent.
    rules = "add table inet loss\nadd chain inet loss in { type filter hook input priority 0; }\n"
    rules += "add rule inet loss in tcp dport 7000 numgen random mod 10 == 0 drop\n"
    subprocess.run(second.enter("nft", "-f", "-"), input=rules, text=True, check=True, timeout=20)
    take = subprocess.Popen(
        second.enter(sys.executable, "-c", SEND, "take"), stdout=subprocess.PIPE, text=True
    )
    assert take.stdout and take.stdout.readline() == "ready\n"
    give = subprocess.Popen(first.enter(sys.executable, "-c", SEND, "give"))
    try:
        time.sleep(1)
        with ras(two_hosts, 1):
            done = check(two_hosts, "--hosts", "10.77.0.1,10.77.0.2", "--interval", "3")
    finally:
        for process in (take, give):
            process.kill()
            process.communicate()
    assert done.returncode == 1
    assert "; TCP on 10.77.0.1 retransmits " in done.stdout.splitlines()[0], done.stdout
