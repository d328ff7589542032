"""A killed `busbw horovodrun` leaves nothing on the machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.launch.test_shared_memory import ENV, mapped, wait_for


def test_a_killed_horovodrun_leaves_neither_ranks_nor_shared_memory(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    program = (
        "import pathlib, sys; from mpi4py import MPI; MPI.COMM_WORLD.Barrier();"
        "pathlib.Path(f'up{MPI.COMM_WORLD.rank}').touch(); sys.stdin.read(); MPI.COMM_WORLD.recv()"
    )
    line = [sys.executable, "-m", "busbw", "horovodrun", "-np", "2", sys.executable, "-c", program]
    with subprocess.Popen(line, cwd=tmp_path, env=ENV, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: len(list(tmp_path.glob("up*"))) == 2)
        segments = mapped(str(process.pid))
        process.kill()
    assert segments
    wait_for(lambda: not any(Path(segment).exists() for segment in segments))
    assert [segment for segment in segments if Path(segment).exists()] == []
