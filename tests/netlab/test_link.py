"""`busbw link` between four emulated hosts: a slow host is named, a dead one too, and a stranger
gets no data.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.netlab, pytest.mark.usefixtures("ranks_are_forks")]

Run = Callable[..., Any]
SOURCE = str(Path(__file__).parents[2] / "src")


def link(lab: Any, *words: str) -> list[str]:
    hosts = ",".join(host.address for host in lab.hosts)
    return list(
        lab.hosts[0].enter(
            sys.executable, "-m", "busbw", "link", "--hosts", hosts, "--seconds", "0.5", *words
        )
    )


def environment(lab: Any) -> dict[str, str]:
    return {**lab.environment(), "PYTHONPATH": SOURCE}


@pytest.fixture
def run(here: Callable[..., Any]) -> Run:
    """run(lab, ...) calls `busbw link` between its hosts, from none of them."""

    def call(lab: Any, *words: str) -> Any:
        hosts = ",".join(host.address for host in lab.hosts)
        return here(lab, "link", "--hosts", hosts, "--seconds", "0.5", *words)

    return call


def unwrapped(text: str) -> str:
    """The text as one line, with single spaces."""
    return " ".join(text.split())


def test_a_throttled_host_is_named_with_its_direction(
    run: Run, four_hosts: Any, tmp_path: Path
) -> None:
    lab, file = four_hosts, tmp_path / "link.json"
    throttle(lab, 400, 400, 100, 400)
    done = run(lab, "--json", str(file), "--html", str(tmp_path / "link.html"))
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    slow = [
        finding["message"] for finding in report["findings"] if finding["id"] == "link.host_slow"
    ]
    assert len(slow) == 1, report["findings"]
    assert slow[0].startswith(f"10.77.0.3 ({lab.hosts[2].name}) is slow on 10.77.0.0/24: it sends ")
    assert "receives" not in slow[0], "only what it sends is throttled"
    assert len(report["flows"]) == 12 and len(report["latencies"]) == 6
    sent = [flow["rate"] for flow in report["flows"] if flow["sender"] == 2]
    assert max(sent) < 13e6, "100 Mbit/s are 12.5 MB/s, however late the receiver's threads are"
    assert report["complete"] and all(latency["count"] > 0 for latency in report["latencies"])
    assert (tmp_path / "link.html").read_bytes().startswith(b"<!DOCTYPE html>")


def test_the_slow_direction_of_two_hosts_is_named(run: Run, two_hosts: Any, tmp_path: Path) -> None:
    throttle(two_hosts, 400, 100)
    done = run(two_hosts, "--json", str(tmp_path / "link.json"))
    report = json.loads((tmp_path / "link.json").read_text(encoding="utf-8"))
    assert [len(flow["rates"]) for flow in report["flows"]] == [4, 4], "each was repeated"
    assert (
        "10.77.0.2 -> 10.77.0.1 is slower than 10.77.0.1 -> 10.77.0.2 on 10.77.0.0/24: at most"
        in unwrapped(done.stdout)
    )
    on_busy_machine = "CPUs limited" in done.stdout
    assert done.returncode == (3 if on_busy_machine else 1), done.stdout + done.stderr


def test_hosts_that_are_alike_pass(run: Run, three_hosts: Any) -> None:
    throttle(three_hosts, 200, 200, 200)
    done = run(three_hosts)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS    no slow host or pair on 10.77.0.0/24" in done.stdout
    assert "SKIP    no pass mark for 6 of 6 transfers on 10.77.0.0/24" in done.stdout


def test_a_known_line_rate_gives_a_pass_mark(run: Run, three_hosts: Any) -> None:
    throttle(three_hosts, 200, 200, 200)
    # on a busy machine the processors limit a rate, and a transfer that they limit has no mark
    for _ in range(4):
        done = run(three_hosts, "--rail", "10.77.0.0/24", "--line-rate", "0.3Gbit/s")
        if "CPUs limited" not in done.stdout:
            break
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "FAIL 6 of 6 transfers on 10.77.0.0/24 are below 95 % of what the given --line-rate can carry"
        in unwrapped(done.stdout)
    )


def test_a_path_that_drops_large_packets_is_a_failure(run: Run, four_hosts: Any) -> None:
    """Connections are made, as their packets are small; data never arrives."""
    lab = four_hosts
    throttle(lab, 200, 200, 200, 200)
    for host in lab.hosts:  # a bridge forwards what is to be segmented later, whatever its length
        subprocess.run(
            ["ip", "-n", host.namespace, "link", "set", host.interface, "gso_max_segs", "1"],
            check=True,
        )
    switch = lab.switch
    subprocess.run(["ip", "-n", switch, "link", "set", "p3", "mtu", "1500"], check=True)
    done = run(lab)
    assert done.returncode == 1, done.stdout + done.stderr
    message = (
        f"FAIL    10.77.0.4 ({lab.hosts[3].name}) exchanges no data with any host on 10.77.0.0/24:"
        " 10.77.0.4: connected, but no data"
    )
    assert unwrapped(message) in unwrapped(done.stdout)


def test_a_host_that_does_not_answer_is_named(here: Run, three_hosts: Any) -> None:
    lab = three_hosts
    throttle(lab, 200, 200, 200)
    hosts = ",".join(
        [lab.hosts[0].address, "10.77.0.99", lab.hosts[1].address, lab.hosts[2].address]
    )
    done = here(lab, "link", "--hosts", hosts, "--seconds", "0.5")
    assert done.returncode == 3, done.stdout + done.stderr
    assert (
        "warning: 10.77.0.99: exit code 255: ssh: connect to host 10.77.0.99 port 22: No route to"
        " host" in done.stderr
    )
    assert "UNKNOWN not measured completely: 10.77.0.99: " in unwrapped(done.stdout)


def test_a_host_that_dies_does_not_end_the_test(four_hosts: Any, tmp_path: Path) -> None:
    lab, file = four_hosts, tmp_path / "link.json"
    throttle(lab, 200, 200, 200, 200)
    argv = link(lab, "--json", str(file), "--limit", "5")
    with subprocess.Popen(
        argv, env=environment(lab), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_flows(file)
        for pid in lab.hosts[3].pids():
            os.kill(pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=100)
    assert process.returncode in (1, 3), output + errors
    assert "warning: 10.77.0.4: " in errors
    report = json.loads(file.read_text(encoding="utf-8"))
    pairs = {(flow["sender"], flow["receiver"]) for flow in report["flows"] if flow.get("rate")}
    assert {(0, 1), (1, 2), (0, 2)} <= pairs, "the others are measured to the end"


def test_ctrl_c_keeps_what_was_measured(four_hosts: Any, tmp_path: Path) -> None:
    lab, file = four_hosts, tmp_path / "link.json"
    throttle(lab, 200, 200, 200, 200)
    with subprocess.Popen(
        link(lab, "--json", str(file)), env=environment(lab), stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for_flows(file)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the test did not finish" in output
    assert json.loads(file.read_text(encoding="utf-8"))["flows"]
    assert all(host.empty_within(10) for host in lab.hosts), "no node is left"


def wait_for_flows(file: Path) -> None:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        if (
            file.exists()
            and file.stat().st_size
            and json.loads(file.read_text(encoding="utf-8"))["flows"]
        ):
            return
        time.sleep(0.05)
    raise AssertionError("no pair was measured within 40 s")


_STRANGER = """
import socket, sys
with socket.create_connection(("10.77.0.2", int(sys.argv[1])), 10) as one:
    one.settimeout(20)
    one.recv(16)
    one.sendall(bytes(16 + 32))
    print(len(one.recv(1 << 16)), flush=True)
"""


def test_a_stranger_without_the_token_is_refused(four_hosts: Any) -> None:
    first, second = four_hosts.hosts[:2]
    argv = second.enter(sys.executable, "-m", "busbw", "link", "--node")
    with subprocess.Popen(
        argv, env=environment(four_hosts), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdin and node.stdout
        node.stdin.write(
            '{"id":1,"ask":{"type":"Listen","address":"10.77.0.2","token":"secret"}}\n'
        )
        node.stdin.flush()
        listening = json.loads(node.stdout.readline())["ok"]
        receive = {
            "type": "Receive",
            "ticket": listening["ticket"],
            "streams": 1,
            "seconds": 0.2,
            "limit_s": 5,
        }
        node.stdin.write(json.dumps({"id": 2, "ask": receive}) + "\n")
        node.stdin.flush()
        stranger = first.enter(sys.executable, "-c", _STRANGER, str(listening["port"]))
        done = subprocess.run(stranger, capture_output=True, text=True, timeout=30, check=True)
        assert done.stdout == "0\n", "the connection is closed without a proof or data"
        answer = json.loads(node.stdout.readline())
        assert (
            answer["error"]
            == "0 of 1 connections arrived within 5 s; 1 other did not have the token"
        )
        code = f"import socket; socket.socket().bind(('127.0.0.1', {listening['port']}))"
        loopback = second.enter(sys.executable, "-c", code)
        subprocess.run(loopback, timeout=30, check=True)  # fails where something listens
        node.stdin.close()
        assert node.wait(5) == 0, "a node ends when its stdin closes"


def throttle(lab: Any, *rates_mbit: float) -> None:
    """Limit what each host sends, so that this machine's processors do not set the rates."""
    import netlab

    for host, rate in zip(lab.hosts, rates_mbit, strict=True):
        netlab.limit(host, rate)
