"""The TCP connections between two emulated hosts: data that are lost in one direction name it, and
a stopped process is not taken for that.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from busbw.host import process
from busbw.host.tcp_sockets import ProcessSockets
from busbw.job.live import path_causes
from busbw.job.live.connections import HostConnections
from busbw.job.live.path_causes import Direction
from busbw.job.live.types import JobLook, LiveRank

pytestmark = pytest.mark.netlab

EXCHANGE = """
import socket, sys, time
address, is_server = sys.argv[1], sys.argv[2] == "0"
if is_server:
    listener = socket.create_server((address, 5000))
    print("listens", flush=True)
    connection, _ = listener.accept()
else:
    connection = socket.create_connection((address, 5000))
data = bytes(200_000)
while True:
    connection.sendall(data)
    connection.recv(len(data), socket.MSG_WAITALL)
    time.sleep(0.01)
"""
CHAIN = "add chain inet faults in { type filter hook prerouting priority -300 ; }"
LOOKS, LOOK_S, STEP_S = 80, 0.25, 2.0  # at most so many; they count as if every 2 s


class Watched:
    """The paths between the hosts, as their readers would see them."""

    def __init__(self, names: list[str], pids: list[int]) -> None:
        self._hosts = [HostConnections(name) for name in names]
        self._pids = pids
        self.look = JobLook()
        for rank, name in enumerate(names):
            self.look.ranks[rank] = LiveRank(rank=rank, host=name, pid=pids[rank])
        self._now_s = 0.0

    def take(self) -> JobLook:
        self._now_s += STEP_S
        self.look.host.paths = []
        for host, pid in zip(self._hosts, self._pids, strict=True):
            host.take(self._now_s, ProcessSockets().read([pid], self._now_s))
            self.look.host.paths += host.evidence()
        return self.look

    def until(self, rule: Callable[[JobLook], Direction | None]) -> Direction:
        """What a rule finds at last."""
        for _ in range(LOOKS):
            time.sleep(LOOK_S)
            found = rule(self.take())
            if found:
                return found
        raise AssertionError(self.look.host.paths)


@pytest.fixture
def exchange(two_hosts: Any) -> Iterator[Watched]:
    """A process on each host, which send to each other; they are read from another network."""
    lab = two_hosts
    with ExitStack() as stack:
        started = []
        for rank, host in enumerate(lab.hosts):
            line = [sys.executable, "-c", EXCHANGE, lab.hosts[0].address, str(rank)]
            one = stack.enter_context(
                subprocess.Popen(host.enter(*line), stdout=subprocess.PIPE, env=lab.environment())
            )
            stack.callback(process.kill, one.pid)
            if rank == 0:
                assert one.stdout and one.stdout.readline() == b"listens\n"
            started.append(one.pid)
        yield Watched([host.name for host in lab.hosts], started)


@contextmanager
def dropped(receiver: Any, sender: Any, percent: int) -> Iterator[None]:
    """So many of the packets are dropped where they arrive."""
    chance = [] if percent == 100 else f"numgen random mod 100 < {percent}".split()
    for words in (
        ["add", "table", "inet", "faults"],
        CHAIN.split(),
        ["add", "rule", "inet", "faults", "in", "ip", "saddr", sender.address, *chance, "drop"],
    ):
        done = subprocess.run(receiver.enter("nft", *words), capture_output=True, timeout=20)
        if done.returncode:
            pytest.skip(f"nft: {done.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(
            receiver.enter("nft", "delete", "table", "inet", "faults"), check=True, timeout=20
        )


@pytest.mark.parametrize("number", [0, 1])
def test_the_host_is_named_of_which_nothing_arrives(
    two_hosts: Any, exchange: Watched, number: int
) -> None:
    exchange.until(lambda look: Direction("", "") if look.host.paths else None)
    sender, receiver = two_hosts.hosts[number], two_hosts.hosts[1 - number]
    with dropped(receiver, sender, 100):
        found = exchange.until(path_causes.silent)
    assert (found.name, found.ranks) == (f"what {sender.name} sends to {receiver.name}", (number,))


def test_the_host_is_named_whose_packets_are_lost(two_hosts: Any, exchange: Watched) -> None:
    with dropped(two_hosts.hosts[0], two_hosts.hosts[1], 5):
        found = exchange.until(path_causes.lossy)
    assert found.ranks == (1,)


def test_a_stopped_process_is_not_taken_for_the_network(exchange: Watched) -> None:
    exchange.until(lambda look: Direction("", "") if look.host.paths else None)
    pid = exchange.look.ranks[1].pid
    os.kill(pid, signal.SIGSTOP)
    for _ in range(10):
        time.sleep(LOOK_S)
        assert not path_causes.silent(exchange.take())
    (sending,) = [
        path for path in exchange.look.host.paths if path.host == exchange.look.ranks[0].host
    ]
    assert sending.timeouts == 0
