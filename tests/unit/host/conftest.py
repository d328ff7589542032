"""A real network interface."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture
def veth() -> Iterator[str]:
    """A pair of virtual interfaces; gives the name of one."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make an interface")
    if shutil.which("ip") is None:
        pytest.skip("no ip: make test-tools")
    name = f"e{uuid.uuid4().hex[:8]}"
    words = [
        "ip",
        "link",
        "add",
        name,
        "numrxqueues",
        "8",
        "numtxqueues",
        "8",
        "type",
        "veth",
        "peer",
        f"{name}p",
    ]
    result = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if result.returncode:
        pytest.skip(f"cannot make an interface: {result.stderr.strip()}")
    yield name
    subprocess.run(["ip", "link", "del", name], timeout=20, capture_output=True)
