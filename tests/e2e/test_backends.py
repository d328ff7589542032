"""`busbw backends` on real ranks."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
SMALL = ("-np", "2", "-b", "1K", "-e", "16K", "-f", "4", "--max-time", "0.05", "--no-history")
LIMIT_S = 120


@pytest.mark.usefixtures("ranks_are_forks")
def test_gloo_and_mpi_are_measured_verified_shown_and_reported(
    here: Callable[..., Any], tmp_path: Path
) -> None:
    file, page = tmp_path / "backends.json", tmp_path / "page.html"
    done = here("busbw", "backends", *SMALL, "--backends", "gloo,mpi,nccl", "--json", str(file))
    assert done.code == 0, done.err
    result = json.loads(file.read_bytes())
    assert result["schema"] == "busbw.backends/1"
    assert result["backends"] == ["gloo", "mpi"]
    assert result["left_out"] == {"nccl": "it needs GPUs"}
    assert [row["size_bytes"] for row in result["rows"]] == [1024, 4096, 16384]
    for row in result["rows"]:
        assert [each["cell"]["wrong"] for each in row["times"]] == [0, 0]
    covered = [(choice["first_bytes"], choice["last_bytes"]) for choice in result["choices"]]
    assert covered[0][0] == 1024
    assert covered[-1][1] == 16384
    assert "left out: nccl: it needs GPUs" in done.out
    assert here("busbw", "show", str(file)).out == done.out
    assert here("busbw", "report", str(file), "--output", str(page)).code == 0
    assert "Microseconds of a call, over message size" in page.read_text(encoding="utf-8")


needs_nixl = pytest.mark.skipif(
    find_spec("nixl_cu13") is None, reason="NIXL is not installed: pip install nixl-cu13"
)


@pytest.mark.usefixtures("ranks_are_forks")
@pytest.mark.parametrize(
    "backends",
    [
        ["gloo", "mpi", "gloo-grouped", "gloo-packed"],
        pytest.param(["nixl", "nixl-write"], marks=needs_nixl),
    ],
)
def test_scattered_blocks_arrive_in_one_group_in_one_message_and_one_sided(
    backends: list[str], here: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "blocks.json"
    line = ["backends", "sendrecv", "--blocks", "8", *SMALL, "-e", "1K", "--json", str(file)]
    done = here("busbw", *line, "--backends", ",".join(backends))
    assert done.code == 0, done.err
    result = json.loads(file.read_bytes())
    assert result["backends"] == backends
    if "nixl" in backends:
        assert result["library"]["versions"]["nixl"].endswith(" UCX")
    for row in result["rows"]:
        for each in row["times"]:
            cell = each["cell"]
            assert cell["wrong"] == 0
            assert cell["algbw"] == pytest.approx(8 * row["size_bytes"] / cell["time_s"])
    assert "GB/s of a transfer of 8 blocks of the size:" in done.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["-b", "64K", "-e", "1K"], "--minbytes 65536 is larger than --maxbytes 1024"),
        (["--backends", "gloo,gloo"], "gloo is named twice"),
    ],
)
def test_contradictions_are_refused_before_ranks_start(
    words: list[str], error: str, here: Callable[..., Any]
) -> None:
    done = here("busbw", "backends", *words, "--dry-run")
    assert done.code == 2
    assert error in done.err


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (
            ["--blocks", "8"],
            "--blocks 8: all_reduce moves no scattered blocks",
            "hint: busbw backends sendrecv --blocks 8",
        ),
        (
            ["sendrecv", "--backends", "gloo,nixl"],
            "--backends nixl: it moves blocks, and --blocks does not say how many",
            "hint: busbw backends sendrecv --blocks 64 -b 4K -e 16M --backends nixl",
        ),
        (
            ["sendrecv", "--blocks", "8", "--copies"],
            "--copies: blocks are not copied into symmetric memory",
            "hint: leave out --copies",
        ),
        (
            ["sendrecv", "--blocks", "8", "--rail", "mlx5_0"],
            "--rail mlx5_0: ranks on one host use no NIC",
            "hint: start them on two hosts: --hosts h1:1,h2:1",
        ),
        (
            ["sendrecv", "--blocks", "8", "--hosts", "localhost:2", "--rail", "eth0=1Gbit/s"],
            "--rail eth0=1Gbit/s: ranks on one host use no NIC",
            "hint: start them on two hosts: --hosts h1:1,h2:1",
        ),
        (
            ["sendrecv", "-np", "2", "--hosts", "h1:2,h2:2", "--rail", "eth0"],
            "--rail eth0: ranks on one host use no NIC",
            "hint: start them on two hosts: --hosts h1:1,h2:1",
        ),
    ],
)
def test_blocks_and_nics_where_they_mean_nothing_are_refused(
    words: list[str], error: str, hint: str, here: Callable[..., Any]
) -> None:
    done = here("busbw", "backends", *words, "--dry-run")
    assert done.code == 2
    assert error in done.err
    assert hint in done.err


def test_a_backend_that_hangs_is_left_out_and_the_others_run_to_the_end(tmp_path: Path) -> None:
    """A rank is stopped while a backend runs; the job starts again without it."""
    file = tmp_path / "backends.json"
    line = [sys.executable, "-m", "busbw", "backends", *SMALL, "--limit", "8", "--json", str(file)]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    line += ["-e", "32K", "-f", "2", "--max-time", "0.5"]
    with subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        threading.Thread(target=_stop_a_rank, args=(file, one.pid), daemon=True).start()
        out, err = one.communicate(timeout=LIMIT_S)
    assert one.returncode == 0, err.decode()
    result = json.loads(file.read_bytes())
    (left_out,) = result["left_out"]
    assert left_out in ("gloo eager", "mpi eager")
    assert f"left out: {left_out}: at " in out.decode()
    assert [row["size_bytes"] for row in result["rows"]] == [1 << n for n in range(10, 16)]


def _stop_a_rank(file: Path, parent: int) -> None:
    """Once a size is measured: SIGSTOP to a rank."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if file.exists() and file.stat().st_size and json.loads(file.read_bytes())["rows"]:
            break
        time.sleep(0.05)
    for pid in _ranks_below(parent)[:1]:
        os.kill(pid, signal.SIGSTOP)


def _ranks_below(parent: int) -> list[int]:
    """The processes of ranks among the descendants of a process."""
    found, families = [], [parent]
    while families:
        pid = families.pop()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        families += map(int, children)
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"busbw.measure.rank" in words and b"OMPI_COMM_WORLD_RANK" in _environ(pid):
            found.append(pid)
    return found


def _environ(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()
