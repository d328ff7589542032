"""The plugin loaded by NCCL itself: libnccl opens it, chooses a table, calls init, and uses or
refuses it.

No GPU.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from ctypes import CDLL
from pathlib import Path

import pytest
from abi import NET_TABLES, SYMBOLS, TUNERS, newest
from libnccl import NO_SYMBOLS
from libnccls import libraries, version_of

from busbw.host.net_plugin import PATH_BYTES

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("native")]

DRIVER = Path(__file__).with_name("libnccl.py")
OLDEST = 22700
FORGETS = range(22800, 23000)  # seen in 2.28.3, 2.28.9 and 2.29.7, not in 2.27.7, 2.30.7 and 2.32.3
# Every symbol by which some version finds a plugin of any kind.
ENTRY = re.compile(rb"nccl(?:\w+Plugin|Profiler)_v\d+")
Run = Callable[..., str]


@pytest.fixture(params=libraries())
def libnccl(request: pytest.FixtureRequest) -> Path:
    """Each in turn."""
    path: Path = request.param
    return path


@pytest.fixture
def version(libnccl: Path) -> int:
    """As NCCL counts: 2.28.9 is 22809."""
    return version_of(libnccl, OLDEST)


@pytest.fixture
def log(libnccl: Path, version: int, plugin_library: Path, tmp_path: Path) -> Run:
    """Creates and destroys communicators in libnccl with the plugin; returns one line for each
    call, then the log.
    """
    if shutil.which("nm") is None:
        pytest.skip("no nm (binutils): make test-tools")

    def run(communicators: int = 1, plugin: Path = plugin_library, **variables: str) -> str:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NCCL_", "BUSBW_"))
        }
        file = tmp_path / "log"
        plugin_variables = {
            "NCCL_NET_PLUGIN": str(plugin),
            "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING,ENV",
            "NCCL_DEBUG_FILE": str(file),
            "BUSBW_NET_SPEED": "10000",
        }
        command = [sys.executable, DRIVER, libnccl, str(communicators)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=50,
            env=clean | plugin_variables | variables,
            check=False,
        )
        if NO_SYMBOLS in done.stderr:
            pytest.skip(f"{libnccl}: {NO_SYMBOLS}")
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + file.read_text()

    return run


def networks(log: str) -> list[str]:
    """The network of each communicator, in order."""
    return re.findall(r"Assigned NET plugin (\S+) to comm", log)


def test_libnccl_uses_the_newest_net_table_it_knows(log: Run, version: int) -> None:
    output = log(NCCL_NET="busbw")
    assert re.search(r"^ncclNetInit 0 changed$", output, re.MULTILINE), output
    table = newest({row.version: row.since for row in NET_TABLES.values()}, version)
    assert re.findall(r"Loaded net plugin (.*)", output) == [f"busbw (v{table})"]
    assert re.search(r"NCCL INFO busbw: lo \S+ at 10000 Mbit/s", output), output
    assert networks(output) == ["busbw"]
    assert not re.search(r"NCCL (WARN|ATTN)", output), output
    assert re.search(r"^ncclNetFinalize 0 ", output, re.MULTILINE), output


def test_libnccl_finds_a_tuner_but_no_profiler_in_the_library(
    log: Run, libnccl: Path, version: int, plugin_library: Path
) -> None:
    """Unless named, NCCL looks for tuner and profiler in the network's library."""
    sought = {name.decode() for name in ENTRY.findall(libnccl.read_bytes())}
    library = CDLL(str(plugin_library))
    assert {name for name in sought if hasattr(library, name)} == SYMBOLS & sought
    output = log(NCCL_NET="busbw")
    assert re.search(
        r"^ncclTunerPluginLoad 0 changed\nncclProfilerPluginInit 0 same$", output, re.MULTILINE
    ), output
    table = newest(TUNERS, version)
    assert re.search(rf"TUNER/Plugin: Using (busbw \(v{table}\)|tuner plugin busbw)", output), (
        output
    )
    assert f"Failed to find ncclTunerPlugin_v{table} symbol" not in output, (
        "the form without a version"
    )


def test_a_bad_setting_falls_back_to_sockets_with_one_message(log: Run) -> None:
    output = log(BUSBW_NET_FAMILY="8")
    (line,) = (line for line in output.splitlines() if "busbw is not used: " in line)
    assert "NCCL INFO" in line and "BUSBW_NET_FAMILY" in line
    assert networks(output) == ["Socket"]


def test_libnccl_opens_paths_up_to_busbws_limit(
    log: Run, plugin_library: Path, tmp_path: Path
) -> None:
    accepted = []
    for size in (PATH_BYTES, PATH_BYTES + 1):
        path = tmp_path / ("p" * (size - len(os.fsencode(tmp_path)) - 1))
        path.symlink_to(plugin_library)
        assert len(os.fsencode(path)) == size
        accepted.append("Loaded net plugin busbw" in log(plugin=path))
    assert accepted == [True, False]


def test_communicators_created_later_also_use_the_plugin(log: Run, version: int) -> None:
    """2.28 and 2.29 forget its name when they close the library, unless a variable keeps it
    open.
    """
    assert networks(log(3, NCCL_NET_PLUGIN_REF_COUNT="1")) == ["busbw"] * 3
    if version not in FORGETS:
        assert networks(log(3)) == ["busbw"] * 3
