"""`busbw capture`, with a program that calls the profiler plugin as NCCL does: no GPU is needed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbw.core.pattern import Pattern
from busbw.launch import mpirun
from busbw.pattern import pattern_lines

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).parents[1] / "native" / "nccl_profiler.py"
Here = Callable[..., Any]
Busbw = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environ(plugin_library: Path) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "BUSBW_"))
    }
    return clean | {"BUSBW_PLUGIN": str(plugin_library)}


@pytest.fixture
def busbw(environ: dict[str, str]) -> Busbw:
    def run(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "busbw", *map(str, arguments)]
        return subprocess.run(
            command, env=environ | env, capture_output=True, text=True, timeout=100, check=False
        )

    return run


def ranks(count: int, *arguments: object) -> list[str]:
    return mpirun.command(mpirun.find(), [sys.executable, *map(str, arguments)], count)


def pattern(folder: Path) -> Pattern:
    with (folder / "pattern.jsonl").open("rb") as lines:
        return pattern_lines.read(lines, "pattern.jsonl")


def test_all_ranks_of_a_launcher_are_recorded(
    here: Here, busbw: Busbw, plugin_library: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    line = ranks(2, PROGRAM, plugin_library, 5, 90, "finalize")
    done = busbw("capture", "--output", folder, "--timed", "--", *line)
    assert done.returncode == 0, done.stderr
    assert "90 calls in 90 rows over 3 communicators" in done.stdout
    recorded = pattern(folder)
    assert (recorded.header.world, recorded.header.ranks, recorded.header.dropped) == (2, [0, 1], 0)
    assert [comm.members for comm in recorded.comms] == [[0, 1]] * 3
    assert [recorded.rows[call.row].count for call in recorded.calls] == list(range(90))
    assert {call.gpu_us for call in recorded.calls} == {0.501}
    again = here("busbw", "show", str(folder), COLUMNS="80")
    assert again.code == 0
    assert done.stdout.endswith(again.out)


def test_rank_that_captures_itself_becomes_its_command(
    here: Here, plugin_library: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    line = ranks(
        2,
        "-m",
        "busbw",
        "capture",
        "--output",
        folder,
        "--",
        sys.executable,
        PROGRAM,
        plugin_library,
        5,
        9,
        "exit",
    )
    done = subprocess.run(
        line,
        env=os.environ | {"BUSBW_PLUGIN": str(plugin_library)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("*.capture"))) == 2
    assert "9 calls in 9 rows" in here("busbw", "show", str(folder)).out


def test_calls_of_a_killed_command_are_recorded(busbw: Busbw, plugin_library: Path, tmp_path: Path):
    done = busbw(
        "capture",
        "--output",
        tmp_path / "run",
        "--",
        sys.executable,
        PROGRAM,
        plugin_library,
        5,
        1000,
        "kill",
        RANK="0",
    )
    assert done.returncode == 128 + signal.SIGKILL
    assert "note: the command ended with 137" in done.stderr
    assert len(pattern(tmp_path / "run").calls) == 1000


def test_command_without_nccl_is_an_error(busbw: Busbw, tmp_path: Path):
    done = busbw("capture", "--output", tmp_path / "run", "--", "true")
    assert done.returncode == 3
    assert "no rank of the command was recorded" in done.stderr


def test_command_that_calls_nothing_is_an_error(busbw: Busbw, plugin_library: Path, tmp_path: Path):
    line = (sys.executable, PROGRAM, plugin_library, 5, 0, "finalize")
    done = busbw("capture", "--output", tmp_path / "run", "--", *line)
    assert done.returncode == 3
    assert "NCCL reported no call" in done.stderr


def test_command_that_fails_before_it_communicates_is_to_be_run_alone(busbw: Busbw, tmp_path: Path):
    done = busbw("capture", "--output", tmp_path / "run", "--", "false")
    assert done.returncode == 1
    assert "error: the command ended with 1 before a rank of it was recorded" in done.stderr
    assert "hint: run it without busbw first" in done.stderr


@pytest.mark.parametrize(("then", "code"), [("", 3), ("; exit 7", 7)])
def test_folder_that_is_removed_meanwhile_is_an_error(
    busbw: Busbw, tmp_path: Path, then: str, code: int
):
    folder = tmp_path / "run"
    done = busbw("capture", "--output", folder, "--", "sh", "-c", f"rm -r {folder}{then}")
    assert done.returncode == code
    assert f"error: {folder}: No such file or directory: it was removed" in done.stderr
    assert "hint: record again" in done.stderr


def test_the_recorder_leaves_other_programs_alone(busbw: Busbw, tmp_path: Path):
    """The user's sitecustomize runs too, and a program without PyTorch leaves no file."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nif 'BUSBW_CAPTURE' in os.environ: print('of the user')"
    )
    code = "import sitecustomize; print(sitecustomize.__file__)"
    line = ("capture", "--output", tmp_path / "run", "--", sys.executable, "-c", code)
    done = busbw(*line, PYTHONPATH=f"{SOURCE}:{tmp_path}")
    assert done.stdout == f"of the user\n{tmp_path / 'sitecustomize.py'}\n"
    assert (done.returncode, list((tmp_path / "run").iterdir())) == (3, [])


@pytest.mark.parametrize("kept", ["pattern.jsonl", "host-1.capture"])
def test_folder_of_another_capture_is_refused(here: Here, tmp_path: Path, kept: str):
    (tmp_path / kept).write_text("kept")
    done = here("busbw", "capture", "--output", str(tmp_path), "--", "true")
    assert done.code == 2
    assert "the folder is not empty" in done.err
    assert (tmp_path / kept).read_text() == "kept"


def test_another_profiler_is_not_replaced(here: Here):
    other = {"NCCL_PROFILER_PLUGIN": "inspector.so"}
    done = here("busbw", "capture", "--output", "run", "--", "true", **other)
    assert done.code == 2
    assert "NCCL_PROFILER_PLUGIN=inspector.so is set" in done.err


def test_missing_command_is_named(busbw: Busbw, tmp_path: Path):
    done = busbw("capture", "--output", tmp_path / "run", "--", "no-such-program")
    assert done.returncode == 3
    assert "no-such-program: No such file or directory" in done.stderr


def test_missing_file_of_a_rank_is_reported(
    here: Here, busbw: Busbw, plugin_library: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    busbw("capture", "--output", folder, "--", *ranks(2, PROGRAM, plugin_library, 5, 9, "finalize"))
    (folder / "pattern.jsonl").unlink()
    removed, remaining = sorted(folder.glob("*.capture"))
    removed.unlink()
    done = here("busbw", "show", str(folder))
    assert "1 of 2 ranks was read" in done.out
    remaining.write_bytes(remaining.read_bytes()[:3000])
    assert here("busbw", "show", str(folder)).code == 2


def test_termination_reaches_the_command_and_keeps_the_record(
    environ: dict[str, str], plugin_library: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    script = f"{sys.executable} {PROGRAM} {plugin_library} 5 30 exit; exec sleep 60"
    command = [
        sys.executable,
        "-m",
        "busbw",
        "capture",
        "--output",
        str(folder),
        "--",
        "sh",
        "-c",
        script,
    ]
    child = subprocess.Popen(
        command, env=environ | {"RANK": "0"}, stdout=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 30
    while not list(folder.glob("*.capture")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1.0)
    child.send_signal(signal.SIGTERM)
    output, _ = child.communicate(timeout=30)
    assert child.returncode == 128 + signal.SIGTERM
    assert "30 calls" in output


SERVER = """
import sys, torch, torch.multiprocessing as processes, torch.distributed as dist

def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for _ in range(5):
        dist.all_reduce(torch.ones(64))
    dist.destroy_process_group()

if __name__ == "__main__":
    processes.set_start_method(sys.argv[2])
    workers = [processes.Process(target=work, args=(rank, sys.argv[1])) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_a_server_starts_itself_are_recorded(
    busbw: Busbw, tmp_path: Path, method: str
):
    """No launcher states their ranks. All have the variables of the server, here those of Slurm."""
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    line = [sys.executable, program, tmp_path / "store", method]
    done = busbw(
        "capture", "--output", tmp_path / "run", "--", *line, SLURM_PROCID="0", SLURM_NTASKS="1"
    )
    assert done.returncode == 0, done.stderr
    recorded = pattern(tmp_path / "run")
    assert (recorded.header.world, recorded.header.ranks) == (2, [0, 1])
    assert [(row.function, row.calls) for row in recorded.rows] == [("all_reduce", 5)]
