"""An interrupted run removes its own files from /dev/shm, and no file of another run."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from busbw.host.process import name
from busbw.launch.cleanup import MARKER, SHARED, Cleanup

ROOT = Path(__file__).parents[3]
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
WORDS = shlex.split("run all_reduce --engine mpi -np 2 -b 1M -e 1M -N 0 -c 0")


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 40
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)


def mapped(pid: str) -> set[str]:
    """The files in /dev/shm that a process or one of its descendants has mapped."""
    try:
        own = {
            line.split()[-1]
            for line in Path("/proc", pid, "maps").read_text().splitlines()
            if str(SHARED) in line
        }
        children = Path("/proc", pid, "task", pid, "children").read_text().split()
    except OSError:
        return set()
    return own.union(*(mapped(child) for child in children))


@pytest.mark.parametrize(
    "stopped", [False, True], ids=["launcher that is well", "launcher that stands still"]
)
def test_repeated_ctrl_c_leaves_no_shared_memory(tmp_path: Path, stopped: bool) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    busbw = [sys.executable, "-m", "busbw", *WORDS, "--json", "r.json"]
    with subprocess.Popen(
        busbw, cwd=tmp_path, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for((tmp_path / "r.json").exists)
        segments = mapped(str(process.pid))
        assert segments
        if stopped:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            (launcher,) = [
                int(child)
                for child in children
                if name(int(child)) in ("prterun", "mpirun", "orterun")
            ]
            os.kill(launcher, signal.SIGSTOP)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        if stopped:
            time.sleep(2.5)
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert [segment for segment in segments if Path(segment).exists()] == []


def test_shared_memory_of_another_job_or_program_is_left_alone() -> None:
    hold = (
        "import mmap, sys; files = [open(name, 'r+b') for name in sys.argv[1:]]; f ="
        " [mmap.mmap(file.fileno(), 0) for file in files];print(flush=True); sys.stdin.read()"
    )
    names = {
        name: SHARED / f"{name}{os.getpid()}"
        for name in ("sm_segment.own", "sm_segment.other", "cuda.shm.")
    }
    holders = []
    try:
        for marker, held in (
            ("own", ["sm_segment.own", "cuda.shm."]),
            ("other", ["sm_segment.other"]),
        ):
            for name in held:
                names[name].write_bytes(b"data")
            words = [sys.executable, "-c", hold, *(str(names[name]) for name in held)]
            holders.append(
                subprocess.Popen(
                    words,
                    env={**ENV, MARKER: f"{marker}{os.getpid()}"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            assert holders[-1].stdout.readline() == b"\n"  # type: ignore[union-attr]
        Cleanup(f"own{os.getpid()}").kill_remaining()
        assert holders[0].wait(10) == -signal.SIGKILL
        assert holders[1].poll() is None
        assert {name for name, file in names.items() if file.exists()} == {
            "sm_segment.other",
            "cuda.shm.",
        }
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
        for file in names.values():
            file.unlink(missing_ok=True)
