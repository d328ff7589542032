"""The plugin reads the table that busbw tune writes, and is steered as busbw.engines.nccl_tuner
does: the calls are those of NCCL.

They go to the tables of the plugin, and to what each libnccl has taken from it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from abi import TUNERS, newest
from libnccl import NO_SYMBOLS
from libnccls import libraries, version_of
from nccl_tuner import INIT, NCCLS_CHUNK, WITH_CHUNKS

from busbw.core.tuner_table import TunerRule, TunerTable
from busbw.core.tuning import TuningChoice

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("native")]
PROGRAM = Path(__file__).with_name("nccl_tuner.py")
SOURCE = Path(__file__).parents[2] / "src"
NOTHING = "[(None, 0), (None, 0), (None, 0), (None, 0)] (None, 0)"
WITH_COSTS = 22400


@pytest.fixture(
    params=[*(pytest.param(version, id=f"v{version}") for version in INIT), *libraries()]
)
def called(request: pytest.FixtureRequest) -> list[str]:
    """Version of the table, and the libnccl that finds it if it is not taken from the plugin."""
    if isinstance(request.param, int):
        return [str(request.param)]
    if shutil.which("nm") is None:
        pytest.skip("no nm (binutils): make test-tools")
    return [str(newest(TUNERS, version_of(request.param, WITH_COSTS))), str(request.param)]


def program_lines(plugin_library: Path, called: list[str], **variables: str) -> list[str]:
    """The lines of the program; the table that NCCL took is the exported one."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "BUSBW_"))
    }
    own = {
        "BUSBW_PLUGIN": str(plugin_library),
        "NCCL_TUNER_PLUGIN": str(plugin_library),
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    environment = {**inherited, **own, "PYTHONPATH": str(SOURCE), **variables}
    done = subprocess.run(
        [sys.executable, PROGRAM, *called],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if NO_SYMBOLS in done.stderr:
        pytest.skip(f"{called[1]}: {NO_SYMBOLS}")
    assert done.returncode == 0, done.stderr + done.stdout
    table, *lines = done.stdout.splitlines()
    assert table == "exported"
    return lines


def chunks_of_nccl(called: list[str]) -> str:
    """What the program prints without a rule."""
    own = NCCLS_CHUNK if int(called[0]) >= WITH_CHUNKS else None
    return f"chunks {own} {own} {own}"


def test_the_plugin_asks_for_what_the_table_says(
    plugin_library: Path, called: list[str], tmp_path: Path
) -> None:
    rule = TunerRule(
        ranks=2,
        hosts=2,
        collective="all_reduce",
        first=1024,
        last=4096,
        choice=TuningChoice("Ring", "Simple", 8),
        chunk=65536,
        note="14 % less",
    )
    file = tmp_path / "table"
    file.write_text(TunerTable(rules=[rule], about=[("device", "NVIDIA H200")]).text())
    assert program_lines(plugin_library, called, BUSBW_TUNER_TABLE=str(file)) == [
        "[(None, 0), (5, 8), (5, 8), (None, 0)] (None, 0)",
        f"chunks 65536 {NCCLS_CHUNK} {NCCLS_CHUNK}"
        if int(called[0]) >= WITH_CHUNKS
        else chunks_of_nccl(called),
    ]
    file.write_text("busbw-tuner-table 9\n")
    why = (
        f"BUSBW_TUNER_TABLE={file}: line 1 is not `busbw-tuner-table 1`: busbw-tuner-table 9; NCCL"
        " chooses"
    )
    assert program_lines(plugin_library, called, BUSBW_TUNER_TABLE=str(file)) == [
        f"log 2 busbw: {why}",
        NOTHING,
        chunks_of_nccl(called),
    ]


def test_steering_changes_single_operations(plugin_library: Path, called: list[str]) -> None:
    lines = program_lines(plugin_library, called)
    assert lines.pop(1) == chunks_of_nccl(called)
    assert lines[:2] == [NOTHING, "0 {} (2, 4) (None, 0) (None, 0)"]
    assert lines[2] == "2 20 False 3", (
        "two hosts; the costs are those before steering, without what NCCL cannot run"
    )
    assert lines[3] == "(None, 0) 20"
