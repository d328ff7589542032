"""A reading before and after a real TCP transfer between two emulated hosts whose link drops
packets: the loss is counted and named.
"""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busbw.core.result import Cell, RankDevice, Result, ResultRow, World
from busbw.core.sweep import SweepSpec
from busbw.core.telemetry import TCP, HostChange
from busbw.model.machine_findings import RULES
from busbw.model.rule import Run, apply

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
SENT_BYTES = 24 << 20

_SERVE = f"""
import socket
listener = socket.create_server(("10.77.0.2", 7001))
print("ready", flush=True)
for _ in range(2):
    one, _ = listener.accept()
    left = {SENT_BYTES}
    while left and (data := one.recv(1 << 16)):
        left -= len(data)
    one.sendall(b"done")
    one.close()
"""
# The readings that rank 0 of a host takes around a row, for two rows; the dropping queue is added
# between them.
_SEND = f"""
import msgspec, socket, sys
from busbw.core.result import RankDevice
from busbw.core.telemetry import change
from busbw.host.host_vitals import Vitals
vitals = Vitals([RankDevice(0, 1, "h1", 0, "", "CPU")])
for _ in range(2):
    before = vitals.read()
    with socket.create_connection(("10.77.0.2", 7001), 10) as one:
        one.sendall(bytes({SENT_BYTES}))
        assert one.recv(4) == b"done"
    print(msgspec.json.encode(change(before, vitals.read())).decode(), flush=True)
    sys.stdin.readline()
"""


def drop(host: Any) -> None:
    """A queue of five full packets at 400 Mbit/s: TCP fills it and loses the packets beyond."""
    words = [
        "tc",
        "-n",
        host.namespace,
        "qdisc",
        "add",
        "dev",
        host.interface,
        "root",
        "tbf",
        "rate",
        "400mbit",
        "burst",
        "20kb",
        "limit",
        "45kb",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        pytest.skip(f"no queue that drops: {done.stderr.strip()}")


@pytest.fixture
def changes(two_hosts: Any) -> list[HostChange]:
    """The change over a transfer on a clean link, then over the same one while packets are
    dropped.
    """
    first, second = two_hosts.hosts
    environment = {"PYTHONPATH": SOURCE, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    with contextlib.ExitStack() as undo:
        server = undo.enter_context(
            subprocess.Popen(
                second.enter(sys.executable, "-c", _SERVE), stdout=subprocess.PIPE, text=True
            )
        )
        undo.callback(server.kill)
        assert server.stdout and server.stdout.readline() == "ready\n"
        line, pipe = first.enter(sys.executable, "-c", _SEND, first.interface), subprocess.PIPE
        sender = undo.enter_context(
            subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=environment)
        )
        undo.callback(sender.kill)
        assert sender.stdin and sender.stdout
        lines = [sender.stdout.readline()]
        drop(first)
        sender.stdin.write("go on\n")
        sender.stdin.flush()
        lines.append(sender.stdout.readline())
        sender.stdin.write("end\n")
        sender.stdin.flush()
        assert (sender.wait(30), server.wait(30)) == (0, 0)
    return [msgspec.json.decode(line, type=HostChange) for line in lines]


def test_retransmissions_are_counted_on_the_sending_host(
    two_hosts: Any, changes: list[HostChange]
) -> None:
    clean, lossy = changes
    name = two_hosts.hosts[0].interface
    assert clean.sent[name] > SENT_BYTES and lossy.sent[name] > SENT_BYTES
    # A veth pair without a limit loses a few by itself, when the receiver's queue overflows.
    by_itself = clean.moved.get(TCP, {}).get("RetransSegs", 0)
    assert lossy.moved[TCP]["RetransSegs"] > 20 + 3 * by_itself
    assert list(lossy.sent) == [name], "no other interface has traffic"


def test_a_slow_row_names_the_interface_and_its_loss(
    two_hosts: Any, changes: list[HostChange]
) -> None:
    name = two_hosts.hosts[0].interface
    sizes = [SENT_BYTES >> 2, SENT_BYTES >> 1, SENT_BYTES, SENT_BYTES << 1]
    clean, lossy = changes
    seconds = [clean.seconds / 4, clean.seconds / 2, lossy.seconds, clean.seconds * 2]
    rows = [
        ResultRow(
            size,
            size,
            "float",
            "sum",
            -1,
            Cell(time_s, size / time_s, size / time_s),
            None,
            1,
            machine=[lossy if size == SENT_BYTES else clean],
        )
        for size, time_s in zip(sizes, seconds, strict=True)
    ]
    world = World([RankDevice(rank, 1, f"h{rank + 1}", 0, "", "CPU") for rank in range(2)], 2)
    result = Result(SweepSpec(collective="all_reduce"), world=world, rows=rows)
    findings = {finding.id: finding for finding in apply(RULES, Run(result, result.topology))}
    assert findings["machine"].message.startswith("24 MiB took ")
    assert f"; at the same time h1 {name}: " in findings["machine"].message
    assert "RetransSegs" in findings["machine"].message
