"""A user's own command line, with variables for all of its ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from busbw.core.errors import NoMeasurement, TimedOut, UsageError
from busbw.host import process
from busbw.launch import mpirun, wrap_command

VARIABLES = {"ONE": "1", "TWO": "2"}


def launcher(folder: Path, name: str, version: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("name", ["mpirun", "mpiexec"])
def test_open_mpi_passes_the_variables_on(tmp_path: Path, name: str) -> None:
    path = launcher(tmp_path, name, "mpirun (Open MPI) 4.1.6")
    assert wrap_command.command_line([path, "-n", "2", "app"], VARIABLES) == [
        path,
        "-x",
        "ONE",
        "-x",
        "TWO",
        "-n",
        "2",
        "app",
    ]


def test_launcher_behind_a_starter_is_found(tmp_path: Path) -> None:
    path = launcher(tmp_path, "mpirun", "mpirun (Open MPI) 4.1.6")
    line = ["timeout", "1h", path, "-n", "2", "app"]
    assert wrap_command.command_line(line, VARIABLES) == [
        "timeout",
        "1h",
        path,
        "-x",
        "ONE",
        "-x",
        "TWO",
        "-n",
        "2",
        "app",
    ]
    assert wrap_command.command_line(["env", "A=1", "python", "train.py"], VARIABLES) == [
        "env",
        "A=1",
        "python",
        "train.py",
    ]


def test_other_launchers_pass_variables_on_by_themselves(tmp_path: Path) -> None:
    path = launcher(tmp_path, "mpiexec", "HYDRA build details: Version 4.2")
    for line in (
        [path, "-n", "2", "app"],
        ["torchrun", "app.py"],
        ["srun", "app"],
        ["srun", "--export=ALL,A=1", "app"],
        ["python", "-x"],
    ):
        assert wrap_command.command_line(line, VARIABLES) == line


@pytest.mark.parametrize(
    "export", [["--export=NONE"], ["--export", "NONE"], ["-D", "/tmp", "--export=NONE"]]
)
def test_srun_that_passes_nothing_on_is_refused(export: list[str]) -> None:
    with pytest.raises(UsageError, match="srun --export=NONE passes no variables"):
        wrap_command.command_line(["srun", "-n", "2", *export, "app"], VARIABLES)


def test_srun_in_a_job_of_sbatch_that_exports_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_EXPORT_ENV", "NONE")
    with pytest.raises(UsageError, match="SLURM_EXPORT_ENV=NONE: srun passes no var") as caught:
        wrap_command.command_line(["srun", "-n", "2", "app"], VARIABLES)
    assert "srun --export=ALL" in caught.value.hint
    for line in (["srun", "--export=ALL", "app"], ["torchrun", "app.py"]):
        assert wrap_command.command_line(line, VARIABLES) == line
    monkeypatch.setenv("SLURM_EXPORT_ENV", "ALL,A=1")
    assert wrap_command.command_line(["srun", "app"], VARIABLES) == ["srun", "app"]


def test_options_of_the_program_are_not_those_of_srun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.sh").write_text("#!/bin/sh\n")
    Path("train.sh").chmod(0o755)
    for program in (["python3", "export.py"], ["./train.sh"]):
        line = ["srun", "-n", "2", *program, "--export=onnx"]
        assert wrap_command.command_line(line, VARIABLES) == line


def test_real_mpirun_gives_every_rank_the_variables() -> None:
    program = "import os; print(os.environ['OMPI_COMM_WORLD_RANK'], os.environ['ONE'])"
    line = mpirun.command(mpirun.find(), [sys.executable, "-c", program], 2)
    result = subprocess.run(
        wrap_command.command_line(line, VARIABLES),
        env=os.environ | VARIABLES,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sorted(result.stdout.split("\n")) == ["", "0 1", "1 1"]


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("true", 0)])
def test_exit_code_is_the_commands(program: str, code: int) -> None:
    assert wrap_command.run(["sh", "-c", program], os.environ) == code


def test_a_command_is_ended_at_its_limit() -> None:
    with pytest.raises(TimedOut, match=r"had not ended after 0.5 s"):
        wrap_command.run(["sh", "-c", "exec sleep 60"], os.environ, limit_s=0.5)


def test_all_processes_of_a_command_are_ended_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a shell, which ends first; and those that ignore SIGTERM."""
    monkeypatch.setattr(wrap_command, "END_S", 0.3)
    pids = tmp_path / "pids"
    deaf = "trap '' TERM; sleep 61"
    script = f'sh -c "{deaf}" & echo $! >> {pids}; sleep 62 & echo $! >> {pids}; wait; true'
    with pytest.raises(TimedOut):
        wrap_command.run(["bash", "-c", script], os.environ, limit_s=0.4)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    assert [process.state(pid) for pid in started if process.start_time(pid)] == []


def test_missing_command_is_named() -> None:
    with pytest.raises(NoMeasurement, match="no-such-program: No such file"):
        wrap_command.run(["no-such-program"], os.environ)


def test_termination_is_passed_on(tmp_path: Path) -> None:
    ready, signal_file = tmp_path / "ready", tmp_path / "seen"
    script = f"trap 'touch {signal_file}; exit 5' TERM; touch {ready}; while :; do sleep 0.1; done"
    run = f"run(['sh', '-c', {script!r}], os.environ)"
    program = f"import os, sys; from busbw.launch.wrap_command import run; sys.exit({run})"
    child = subprocess.Popen([sys.executable, "-c", program])
    end = time.monotonic() + 20
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 5
    assert signal_file.exists()


def test_a_termination_while_the_command_starts_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = subprocess.Popen

    def terminated(*words: Any, **more: Any) -> "subprocess.Popen[bytes]":
        os.kill(os.getpid(), signal.SIGTERM)
        return start(*words, **more)

    monkeypatch.setattr("busbw.launch.wrap_command.subprocess.Popen", terminated)
    assert wrap_command.run(["sleep", "600"], os.environ) == 128 + signal.SIGTERM


def test_an_interrupt_ends_what_follows_the_command() -> None:
    line = ["sh", "-c", "kill -INT $PPID; exit 5"]
    assert wrap_command.run(line, os.environ) == 5
    with pytest.raises(KeyboardInterrupt):
        wrap_command.run(line, os.environ, is_part=True)
