"""Signals that do not end a run, and one that only a rank gets."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDLESS = shlex.split(
    "run all_reduce --engine mpi -np 2 -b 8 -e 64 -N 0 --max-time 0.02 --json r.json"
)
LIMIT_S = 6  # so long that a busy machine does not reach it
RESUMED_S = 60.0  # for one row more, on a busy machine


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """An endless run that has measured something."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    words = [sys.executable, "-m", "busbw", *ENDLESS, "--limit", str(LIMIT_S)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 40
        while not rows(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        yield process
        process.send_signal(signal.SIGCONT)
        process.kill()


def rows(folder: Path) -> int:
    try:
        return len(json.loads((folder / "r.json").read_bytes())["rows"])
    except FileNotFoundError:
        return 0


def test_a_suspended_run_resumes(running: subprocess.Popen[str], tmp_path: Path) -> None:
    running.send_signal(signal.SIGSTOP)  # as Ctrl-Z does
    time.sleep(LIMIT_S + 3)
    before = rows(tmp_path)
    running.send_signal(signal.SIGCONT)
    end = time.monotonic() + RESUMED_S
    while rows(tmp_path) == before and running.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    assert running.poll() is None, running.communicate()[1]
    assert rows(tmp_path) > before
    running.send_signal(signal.SIGINT)
    assert running.wait(20) == 130


def test_an_interrupted_run_prints_and_keeps_what_it_has_so_far(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    long = ["-b", "8", "-e", "64M", "-f", "2", "--precision", "0.01%", "--max-time", "60"]
    words = [
        sys.executable,
        "-m",
        "busbw",
        "run",
        "all_reduce",
        "--engine",
        "mpi",
        "-np",
        "2",
        *long,
        "--format",
        "csv",
        "--json",
        "r.json",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 60
        while rows(tmp_path) < 2 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    saved_rows = json.loads((tmp_path / "r.json").read_bytes())["rows"]
    assert [row["size_bytes"] for row in saved_rows] == [
        8 << number for number in range(len(saved_rows))
    ], errors
    assert f"{len(saved_rows)} rows were measured and saved in r.json" in errors
    assert len(output.splitlines()) == 1 + 2 * len(saved_rows), (
        "the header, and each size out of place and in place"
    )


def test_an_interrupted_rank_is_not_reported_as_a_bug(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    os.kill(
        json.loads((tmp_path / "r.json").read_bytes())["world"]["devices"][1]["pid"], signal.SIGINT
    )
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 3
    assert "Traceback" not in errors
    assert "error: rank 1 on " in errors
    assert ": interrupted (" in errors
