"""`busbw watch job` over two emulated hosts: a rank that is stopped on the second one is named, and
so is a host whose reader is gone.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from busbw.host import process

pytestmark = pytest.mark.netlab

SOURCE = str(Path(__file__).parents[2] / "src")
STEPS = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(4))
    time.sleep(0.02)
"""
LOOKS = 100  # of 0.5 s, at most for what is waited for


def start(lab: Any, stack: ExitStack, rank: int, *words: str) -> subprocess.Popen[str]:
    """busbw on a host; it and what it started are killed at the end."""
    host = lab.hosts[rank]
    environ = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    environ |= {"MASTER_ADDR": lab.hosts[0].address, "GLOO_SOCKET_IFNAME": host.interface}
    started = stack.enter_context(
        subprocess.Popen(
            host.enter(sys.executable, "-m", "busbw", *words),
            env=lab.environment() | environ | {"PYTHONPATH": SOURCE},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )
    stack.callback(lambda: [process.kill(pid) for pid in host.pids()])
    return started


def until(watch: subprocess.Popen[str], is_it: Callable[[Any], object]) -> Any:
    """The first interval of which something holds."""
    assert watch.stdout
    for _ in range(LOOKS):
        interval = json.loads(watch.stdout.readline())
        if is_it(interval):
            return interval
    raise AssertionError(interval)


def test_a_stopped_rank_and_a_lost_reader_are_named(two_hosts: Any, tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(STEPS)
    folder = str(tmp_path / "job")
    addresses = [host.address for host in two_hosts.hosts]
    with ExitStack() as stack:
        for rank in (0, 1):
            words = ["capture", "--output", folder, "--", sys.executable, str(program)]
            start(two_hosts, stack, rank, *words)
        hosts = ["--hosts", ",".join(addresses), "--interval", "0.5", "--format", "json"]
        watch = start(two_hosts, stack, 0, "watch", "job", folder, *hosts)
        both = until(watch, lambda found: len(found.get("ranks", [])) == 2)
        pid = both["ranks"][1]["pid"]
        assert both["ranks"][1]["host"] == two_hosts.hosts[1].name

        os.kill(pid, signal.SIGSTOP)
        found = until(watch, lambda found: found["verdict"] == "fail")
        assert (found["kind"], found["suspects"]) == ("stopped", [1]), found
        assert f"on {two_hosts.hosts[1].name} is stopped: process {pid}, " in found["message"]
        os.kill(pid, signal.SIGCONT)

        reader = [pid for pid in two_hosts.hosts[1].pids() if "live.node" in process.command(pid)]
        for pid in reader:
            process.kill(pid)
        lost = f"{addresses[1]}: exit code "
        found = until(watch, lambda found: "unread" in found)
        assert found["unread"][0].startswith(lost), found
        # The folder is shared: the other reader reads the rank's file, without its process's state.
        found = until(watch, lambda found: found["kind"] == "unjudged")
        assert "state" not in found["ranks"][1] and "state" in found["ranks"][0], found

        process.kill(watch.pid)
        here = [pid for pid in two_hosts.hosts[0].pids() if "live.node" in process.command(pid)]
        while any(process.state(pid) not in process.ENDED for pid in here):
            os.sched_yield()
