"""Jobs of real ranks over gloo: each rank runs the named scenarios of a module one after the other and says what came of each."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RANKS = Path(__file__).with_name("ranks.py")
LIMIT_S = 240


def run(
    folder: Path, module: str, names: Sequence[str], ranks: int, hosts: int = 1, program: Path = RANKS, **more: str
) -> list[dict[str, Any]]:
    """What each rank said of each scenario, with its `code` and `stderr`; ranks are as if on so many hosts, in blocks."""
    argv = [sys.executable, str(program), str(folder), str(ranks), str(hosts), module, *names]
    subprocess.run(argv, env={**os.environ, "OMP_NUM_THREADS": "1", **more}, timeout=LIMIT_S, check=True)
    return [_said(folder, rank) for rank in range(ranks)]


def all_well(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, where every rank came to its end; the first that did not fails the test with its own words."""
    for one in said:
        assert one["code"] == 0, one["stderr"][-4000:]
    return said


def _said(folder: Path, rank: int) -> dict[str, Any]:
    words = (folder / f"{rank}.out").read_text().splitlines()
    code = int((folder / f"{rank}.code").read_text())
    return {**(json.loads(words[-1]) if words else {}), "code": code, "stderr": (folder / f"{rank}.err").read_text()}
