"""The plugin reads the table that busbw tune writes, and is steered as busbw.engines.nccl_tuner does: the calls are those of NCCL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from busbw.core.tuner_table import Rule, Table
from busbw.core.tuning import Choice

pytestmark = [pytest.mark.timeout(60), pytest.mark.xdist_group("native")]
# Calls the functions of the table ncclTunerPlugin_v5 (name, init, getCollInfo, finalize) in a process of its own, as steering never ends.
ASK = f"""
import ctypes, os, sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "src")!r})
from busbw.core.tuning import Choice
from busbw.engines.nccl_tuner import NcclTuner

library = ctypes.CDLL(os.environ["BUSBW_PLUGIN"])
table = (ctypes.c_void_p * 4).in_dll(library, "ncclTunerPlugin_v5")
context = ctypes.c_void_p()
init = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p, ctypes.c_uint64] + [ctypes.c_size_t] * 2 + [ctypes.c_void_p] * 3)(table[1])
get = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, *[ctypes.c_int] * 3, ctypes.c_void_p
)(table[2])


def ask(function, size):
    costs, channels = (ctypes.c_float * 21)(*range(1, 22)), ctypes.c_int()
    costs[4] = -1
    assert get(context, function, size, 1, costs, 7, 3, 0, ctypes.byref(channels)) == 0
    return costs[:].index(0) if 0 in costs[:] else None, channels.value


tuner = NcclTuner() if sys.argv[1:] else None
assert init(ctypes.byref(context), 0, 2, 2, None, None, None) == 0
print([ask(4, size) for size in (1023, 1024, 4096, 4097)], ask(0, 1024))
if tuner:
    tuner.steer("all_reduce", 64, Choice("Tree", "Simple", 4))
    print(tuner.costs(), ask(4, 64), ask(4, 65), ask(3, 64))
    costs = tuner.costs()
    print(len(costs), Choice("Ring", "LL128") in costs, round(costs[Choice("Tree", "Simple")] * 1e6))
    tuner.steer("all_reduce", 64, None)
    print(ask(4, 64), len(tuner.costs()))
"""


def asked(plugin_library: Path, *words: str, **variables: str) -> tuple[list[str], str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "BUSBW_"))}
    environment = {**kept, "BUSBW_PLUGIN": str(plugin_library), "NCCL_NET": "Socket", **variables}
    done = subprocess.run([sys.executable, "-c", ASK, *words], env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_the_plugin_asks_for_what_the_table_says(plugin_library: Path, tmp_path: Path) -> None:
    rule = Rule(ranks=2, hosts=2, collective="all_reduce", first=1024, last=4096, choice=Choice("Ring", "Simple", 8), note="14 % less")
    file = tmp_path / "table"
    file.write_text(Table(rules=[rule], about=[("device", "NVIDIA H200")]).text())
    (line,), _ = asked(plugin_library, BUSBW_TUNER_TABLE=str(file))
    assert line == "[(None, 0), (5, 8), (5, 8), (None, 0)] (None, 0)"
    file.write_text("busbw-tuner-table 9\n")
    (line,), _ = asked(plugin_library, BUSBW_TUNER_TABLE=str(file))
    assert line == "[(None, 0), (None, 0), (None, 0), (None, 0)] (None, 0)", "NCCL chooses if the table cannot be read"


def test_steering_changes_single_operations(plugin_library: Path) -> None:
    lines, _ = asked(plugin_library, "steer")
    assert lines[1] == "{} (2, 4) (None, 0) (None, 0)"
    assert lines[2] == "20 False 3", "the costs are those before steering, without what NCCL cannot run"
    assert lines[3] == "(None, 0) 20"
