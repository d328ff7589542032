"""A watch on real interfaces: rates are those of what was sent, unplugged interfaces are named,
and no sample is lost at 100 ms.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {"PYTHONPATH": SOURCE, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
PACKET_BYTES, ETHERNET_BYTES = 8000, 8 + 20 + 14  # of UDP, IP and Ethernet
PER_S, SENT_S = 500, 4.0
# Packets at an even rate, on absolute deadlines.
SEND = f"""
import socket, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    start, count = time.monotonic(), int({PER_S} * {SENT_S})
    for number in range(count):
        one.sendto(bytes({PACKET_BYTES}), ("10.77.0.2", 9))
        time.sleep(max(0, start + (number + 1) / {PER_S} - time.monotonic()))
    print(count)
"""


class Watch:
    """`busbw watch --format json` on an emulated host; its lines as they come."""

    def __init__(self, host: Any, *words: str) -> None:
        command = [sys.executable, "-m", "busbw", "watch", "--no-gpus", "--format", "json", *words]
        self.process = subprocess.Popen(
            host.enter(*command),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        self.lines.extend(map(json.loads, self.process.stdout))

    def ended(self, code: int = 0) -> list[dict[str, Any]]:
        """All lines, once it has ended with this exit code."""
        with self.process:
            self._reader.join(60)
            assert self.process.stderr
            assert self.process.wait(10) == code, self.process.stderr.read()
        return self.lines

    def wait(self, count: int) -> None:
        """Wait until there are `count` lines."""
        deadline = time.monotonic() + 90
        while len(self.lines) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(self.lines) >= count


def link(line: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in line["links"] if entry["name"] == name)


def test_rates_are_those_of_what_was_sent(two_hosts):
    first, second = two_hosts.hosts
    watches = [Watch(host, "--interval", "100ms") for host in (first, second)]
    for watch in watches:
        watch.wait(3)
    sent = int(
        subprocess.run(
            first.enter(sys.executable, "-c", SEND), capture_output=True, check=True, timeout=60
        ).stdout
    )
    size = PACKET_BYTES + ETHERNET_BYTES
    for watch, host, way in zip(watches, (first, second), ("tx", "rx"), strict=True):
        watch.wait(len(watch.lines) + 3)
        watch.process.terminate()
        lines = watch.ended()
        moved = sum(link(line, host.interface).get(way, 0) * line["seconds"] for line in lines)
        assert moved == pytest.approx(sent * size, rel=0.01), "what the rates add up to"
        assert all("rate" not in link(line, host.interface) for line in lines), (
            "a virtual interface has no line rate"
        )


def test_every_sample_at_100_ms_is_taken_or_counted_as_missed(two_hosts):
    lines = Watch(two_hosts.hosts[0], "--interval", "100ms", "--seconds", "8").ended()
    missed_count = sum(line.get("missed", 0) for line in lines)
    assert len(lines) + missed_count == 80
    assert lines, (
        "how many are missed depends on what else runs; benchmarks/watch_cost.py measures an idle"
        " machine"
    )
    assert sum(line["seconds"] for line in lines) == pytest.approx(8, abs=1), "no drift"


def test_an_interface_is_unplugged_and_plugged_in_again(two_hosts, tmp_path):
    first = two_hosts.hosts[0]

    def ip(*words: str) -> None:
        subprocess.run(
            ["ip", "-n", first.namespace, *words], check=True, timeout=20, capture_output=True
        )

    ip("link", "add", "spare0", "type", "veth", "peer", "spare1")
    watch = Watch(
        first,
        "--interval",
        "100ms",
        "--seconds",
        "6",
        "--port",
        first.interface,
        "--port",
        "spare0",
    )
    watch.wait(5)
    ip("link", "del", "spare0")
    gone_from = len(watch.lines) + 2
    watch.wait(gone_from + 5)
    ip("link", "add", "spare0", "type", "veth", "peer", "spare1")
    back_from = len(watch.lines) + 2
    lines = watch.ended(code=1)
    assert link(lines[2], "spare0").get("state") == "down", "nobody set it up"
    away = lines[gone_from : gone_from + 4]
    assert [link(line, "spare0") for line in away] == [
        {"name": "spare0", "kind": "ethernet", "state": "gone"}
    ] * 4
    assert all(
        ("spare0", "gone") in [(event["link"], event["pattern"]) for event in line["said"]]
        for line in away
    )
    assert "tx" in link(lines[back_from + 3], "spare0")
    rates = [
        rate for line in lines for entry in line["links"] if (rate := entry.get("tx")) is not None
    ]
    assert max(rates) < 1e6, "no jump from counters that began anew"
    assert all("tx" in link(line, first.interface) for line in lines), "the other interface goes on"


def test_metrics_count_what_was_sent(two_hosts):
    first, _ = two_hosts.hosts
    words = ["--listen", "127.0.0.1:28729", "--interval", "100ms", "--seconds", "12"]
    process = subprocess.Popen(
        first.enter(sys.executable, "-m", "busbw", "watch", "--no-gpus", *words),
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    fetch = (
        "import urllib.request as u; print(u.urlopen('http://127.0.0.1:28729/metrics',"
        " timeout=10).read().decode())"
    )

    def sent() -> float:
        page = subprocess.run(
            first.enter(sys.executable, "-c", fetch),
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout
        families = {family.name: family for family in parser.text_string_to_metric_families(page)}
        samples = families["busbw_network_transmit_bytes"].samples
        return next(
            sample.value for sample in samples if sample.labels == {"device": first.interface}
        )

    try:
        assert process.stderr and "note: serving" in process.stderr.readline()
        before = sent()
        count = int(
            subprocess.run(
                first.enter(sys.executable, "-c", SEND), capture_output=True, check=True, timeout=60
            ).stdout
        )
        expected = pytest.approx(count * (PACKET_BYTES + ETHERNET_BYTES), rel=0.01)
        # until a reading after the last packet
        while (sent_bytes := sent() - before) != expected and process.poll() is None:
            time.sleep(0.1)
        assert sent_bytes == expected
        assert process.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()
