"""NCCL names what calls run in its log while busbw asks for it, and at no other time: in every
libnccl that is here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from abi import PROFILERS, newest
from libnccl import NO_SYMBOLS
from libnccls import libraries, version_of

PROGRAM = Path(__file__).with_name("log_again.py")
OLDEST = 22700  # the first that gives the logger to a profiler


@pytest.mark.parametrize("libnccl", libraries())
def test_a_log_in_memory_has_choices_for_a_while(libnccl: Path, plugin_library: Path) -> None:
    version = version_of(libnccl, OLDEST)
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "BUSBW_"))
    }
    run = subprocess.run(
        [sys.executable, PROGRAM, libnccl],
        env=clean | {"BUSBW_PLUGIN": str(plugin_library)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if NO_SYMBOLS in run.stderr:
        pytest.skip(f"{libnccl}: {NO_SYMBOLS}")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [newest(PROFILERS, version), [0, 1, 1], True]
