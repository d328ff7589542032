"""`busbw run --watch` over two emulated hosts: what each host sent at each size, and TCP's
retransmissions where packets were lost.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import netlab
import pytest

pytestmark = [pytest.mark.netlab, pytest.mark.usefixtures("ranks_are_forks")]

SOURCE = str(Path(__file__).parents[2] / "src")
NETWORK = "10.77.0.0/24"
HOSTS = "10.77.0.1:1,10.77.0.2:1"


def drop(host: Any) -> None:
    """A queue of five full packets at 400 Mbit/s: TCP fills it and loses the packets beyond."""
    shape = ["tbf", "rate", "400mbit", "burst", "20kb", "limit", "45kb"]
    words = ["tc", "-n", host.namespace, "qdisc", "add", "dev", host.interface, "root", *shape]
    subprocess.run(words, capture_output=True, timeout=20, check=True)


def watched(lab: Any, file: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """The output of `busbw run --watch`, and its result."""
    where = ("--hosts", HOSTS, "--ifname", NETWORK)
    argv = shlex.split("run all_reduce --engine mpi -b 16K -e 4M -f 16 --watch --max-time 0.5")
    done = netlab.busbw(lab, *argv, *where, "--json", str(file), *words)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


def of_hosts(result: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return [(row["size_bytes"], change) for row in result["rows"] for change in row["machine"]]


def test_each_host_sends_what_the_operations_need(two_hosts: Any, tmp_path: Path) -> None:
    text, result = watched(two_hosts, tmp_path / "r.json")
    names = {host.name: host.interface for host in two_hosts.hosts}
    changes = of_hosts(result)
    assert [(size, change["host"]) for size, change in changes] == [
        (row["size_bytes"], name) for row in result["rows"] for name in names
    ]
    for row in result["rows"]:
        least = row["size_bytes"] * row["operations"]  # 2 (H - 1) / H of two hosts is 1
        for change in row["machine"]:
            (link,) = change["links"]
            assert link["name"] == names[change["host"]] and link["kind"] == "ethernet"
            assert least <= link["sent"] < 1.2 * least + 2_000_000, (
                "with headers, acknowledgements and the control messages of MPI"
            )
    table = text[text.index("what links carried") :].split("\n\n")[0]
    assert [line.split()[2:4] for line in table.splitlines()[2:]] == [
        list(pair) for _ in result["rows"] for pair in names.items()
    ]
    assert "of least" in table and "TCP resent" in table
    again = subprocess.run(
        [sys.executable, "-m", "busbw", "show", "--wide", str(tmp_path / "r.json")],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert table in again.stdout, "shown again"


def test_loss_is_shown_at_the_sizes_that_had_it(two_hosts: Any, tmp_path: Path) -> None:
    second, file, begun = two_hosts.hosts[1], tmp_path / "r.json", threading.Event()

    def lose_at_the_last_size() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not begun.is_set():
            if file.exists() and len(json.loads(file.read_text() or "{}").get("rows", [])) >= 2:
                begun.set()
                drop(second)
            time.sleep(0.02)

    thread = threading.Thread(target=lose_at_the_last_size)
    thread.start()
    try:
        _, result = watched(two_hosts, file)
    finally:
        begun.set()
        thread.join(30)
    resent = {(size, change["host"]): change["resent"] for size, change in of_hosts(result)}
    sizes = [row["size_bytes"] for row in result["rows"]]
    lost = resent[sizes[-1], second.name]
    assert lost > 20, resent
    assert all(lost > 3 * resent[size, second.name] for size in sizes[:2]), resent
