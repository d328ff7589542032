"""Jobs of real ranks over gloo: each rank runs the named scenarios of a module one after the other and says what came of each."""

import atexit
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIMIT_S = 240


def run(
    folder: Path, module: str, names: Sequence[str], ranks: int, hosts: int = 1, program: Path = HERE / "ranks.py", **more: str
) -> list[dict[str, Any]]:
    """What each rank said of each scenario, with its `code` and `stderr`; ranks are as if on so many hosts, in blocks."""
    argv = [str(folder), str(ranks), str(hosts), module, *names]
    forge = _forge()
    told = {"program": str(program), "argv": argv, "environment": {**os.environ, "OMP_NUM_THREADS": "1", **more}}
    forge.stdin.write(json.dumps(told) + "\n")
    forge.stdin.flush()
    if not select.select([forge.stdout], [], [], LIMIT_S)[0]:
        forge.kill()
        _forge.cache_clear()
        raise TimeoutError(f"{module} has not ended within {LIMIT_S} s")
    assert forge.stdout.readline() == "0\n"
    return [_said(folder, rank) for rank in range(ranks)]


@cache
def _forge() -> "subprocess.Popen[str]":
    argv = [sys.executable, str(HERE / "forge.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(started.communicate)  # the end of its input is its own
    return started


def all_well(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, where every rank came to its end; the first that did not fails the test with its own words."""
    for one in said:
        assert one["code"] == 0, one["stderr"][-4000:]
    return said


def _said(folder: Path, rank: int) -> dict[str, Any]:
    words = (folder / f"{rank}.out").read_text().splitlines()
    code = int((folder / f"{rank}.code").read_text())
    return {**(json.loads(words[-1]) if words else {}), "code": code, "stderr": (folder / f"{rank}.err").read_text()}
