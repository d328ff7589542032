"""The plugin says what NCCL runs for the calls that busbw asks about, and for no others, whichever
profiler table NCCL uses.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from abi import PROFILERS

from busbw.core.ran import NcclKernel
from busbw.engines.nccl_profiler import kernels

PROGRAM = Path(__file__).with_name("what_ran_calls.py")
CALLS, API, COPY_ENGINES = 0x6, 0x700, 0x1000


@pytest.fixture(scope="module")
def answers(plugin_library: Path) -> dict[str, Any]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "BUSBW_"))
    }
    run = subprocess.run(
        [sys.executable, PROGRAM, plugin_library],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    given: dict[str, Any] = json.loads(run.stdout)
    return given


@pytest.mark.parametrize("version", PROFILERS)
def test_only_calls_that_are_asked_about_are_reported(
    answers: dict[str, Any], version: int
) -> None:
    answer = answers[str(version)]
    assert answer["nothing"] == [0, ["", 0]], "no communicator has loaded the plugin"
    assert answer["interface"] == version
    asking = CALLS | (API if version >= 5 else 0) | (COPY_ENGINES if version >= 6 else 0)
    assert answer["masks"] == [0, asking, 0]
    text, lost = answer["answer"]
    expected = [
        NcclKernel("Ring", "Simple", 2),
        NcclKernel("SendRecv", "", 0 if version == 2 else 2),
    ]
    if version >= 6:
        expected.append(NcclKernel("CopyEngine", ""))
    if version >= 7:
        expected.append(NcclKernel("Symmetric", "", 0, "AR_LL"))
    assert (kernels(text), lost) == (expected, 0)
    assert answer["log"] == []


@pytest.mark.parametrize("version", PROFILERS)
def test_what_finds_no_room_is_counted(answers: dict[str, Any], version: int) -> None:
    lines, lost = answers[str(version)]["many"]
    assert (len(lines), lost) == (16, 4)
    assert lines[3] == "coll\tReduce\tTREE  \tLL\t3\t"
    text, lost = answers[str(version)]["little"]
    assert len(text) < 40 and lost >= 1


@pytest.mark.parametrize("version", PROFILERS)
def test_a_call_without_a_task_ran_a_kernel_over_symmetric_memory(
    answers: dict[str, Any], version: int
) -> None:
    """In NCCL 2.28 to 2.30 (v5 and v6): older releases report no calls, newer ones every task."""
    text, lost = answers[str(version)]["silent"]
    expected = {
        5: [("symmetric", "AllReduce"), ("symmetric", "AllGather")],
        6: [("copy_engine", "AllGather"), ("symmetric", "AllReduce")],
        7: [("copy_engine", "AllGather")],
    }
    lines = [line.split("\t") for line in text.splitlines()]
    assert [(line[0], line[1]) for line in lines] == expected.get(version, [])
    assert all(line[2:] == ["", "", "0", ""] for line in lines) and lost == 0
    unnamed = NcclKernel("Symmetric", "")
    assert (unnamed in kernels(text)) == (version in {5, 6})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("coll\tAllReduce\tRING\tLL\n", []),
        ("coll\tAllReduce\tRING\tLL\tx\t\n", []),
        ("coll\tAllReduce\t\t\t0\t\n", []),
        ("coll\tAllReduce\tNEW_ONE\tLL256\t4\t\n", [NcclKernel("NEW_ONE", "LL256", 4)]),
        ("p2p\tSend\t\t\t2\t\np2p\tRecv\t\t\t2\t\n", [NcclKernel("SendRecv", "", 2)]),
    ],
)
def test_lines_of_the_plugin(text: str, found: list[NcclKernel]) -> None:
    assert kernels(text) == found
