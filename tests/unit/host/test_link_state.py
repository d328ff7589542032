"""Which links are watched: real interfaces, in a network namespace that a process creates for
itself.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from busbw.host import addresses, link_state

PROGRAM = """
import json, subprocess, sys, time
from busbw.host import link_state as carrier

def ip(*words):
    subprocess.run(["ip", *words], check=True)

for number, name in enumerate(("eth0", "eth1", "veth9", "docker0", "tun0", "bare0")):
    ip("link", "add", name, "type", "veth", "peer", f"p{number}")
    ip("link", "set", f"p{number}", "up")
    ip("link", "set", name, "up")
    if name != "bare0":
        ip("addr", "add", f"10.7.{number}.1/24", "dev", name)
selected = ("docker0", "bare0")
# The kernel reports carrier changes with a delay: up to a second if many links change.
deadline = time.monotonic() + 20
while len(carrier.interfaces_with_link(("docker0", "bare0", "veth9", "tun0", "eth0", "eth1"))) < 6 and time.monotonic() < deadline:
    time.sleep(0.01)
before, chosen = carrier.interfaces_with_link(), carrier.interfaces_with_link(selected)
ip("link", "set", "p0", "down")
ip("link", "set", "p2", "down")
ip("link", "delete", "eth1")
ip("link", "delete", "docker0")
while carrier.interfaces_with_link(("eth0", "veth9")) and time.monotonic() < deadline:
    time.sleep(0.01)
print(json.dumps([sorted(before), sorted(chosen), carrier.lost_links(before), carrier.lost_links(chosen, selected)]))
"""


def test_loopback_has_a_link() -> None:
    assert "lo" in link_state.interfaces_with_link()


def test_foreign_and_removed_links_are_not_reported() -> None:
    unshare = shutil.which("unshare")
    if os.geteuid() or unshare is None:
        pytest.skip("a network namespace needs root and unshare")
    if shutil.which("ip") is None:
        pytest.skip("no ip: make test-tools")
    env = {**os.environ, "PYTHONPATH": str(Path(addresses.__file__).parents[2])}
    result = subprocess.run(
        [unshare, "-n", sys.executable, "-c", PROGRAM],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    before, chosen, lost, lost_chosen = json.loads(result.stdout)
    assert before == ["eth0", "eth1"]
    assert chosen == ["bare0", "docker0", "eth0", "eth1"]
    assert lost == ["eth0"]
    assert lost_chosen == ["docker0", "eth0"]
