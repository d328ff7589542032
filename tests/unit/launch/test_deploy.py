"""The script that receives a single file on a host."""

import os
import subprocess
from pathlib import Path

import pytest

from busbw.launch import deploy, remote


def receive(
    target: Path, data: bytes, python: Path, before: str = ":"
) -> subprocess.CompletedProcess[bytes]:
    """Run the script after the shell command `before`, in the same process."""
    words = [str(target), str(len(data)), str(python), "10"]
    return subprocess.run(
        ["sh", "-c", f'{before}; exec sh -c "$SCRIPT" sh "$@"', "sh", *words],
        env=os.environ | {"SCRIPT": deploy._RECEIVE_SCRIPT},
        input=data,
        capture_output=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that prints the mode of the file that it is to start, and the file."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\nstat -c %a "$1"; cat "$1"\n')
    path.chmod(0o755)
    return path


def test_file_is_received_under_a_new_name(tmp_path: Path, python: Path) -> None:
    """Nobody can prepare the temporary file, and a file of an earlier try is in nobody's way."""
    target, victim = tmp_path / "new" / "busbw.pyz", tmp_path / "victim"
    target.parent.mkdir()
    victim.write_bytes(b"kept")
    plant = f'ln -s {victim} "$1.$(uname -n).$$"'
    done = receive(target, b"data", python, plant)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"755\ndata", b"")
    assert (target.read_bytes(), victim.read_bytes()) == (b"data", b"kept")
    assert len(list(target.parent.iterdir())) == 2


def test_failed_copy_leaves_what_was_there(tmp_path: Path, python: Path) -> None:
    target = tmp_path / "new" / "busbw.pyz"
    target.parent.mkdir()
    target.write_bytes(b"old")
    python.write_text("#!/bin/sh\nexit 3\n")
    assert receive(target, b"data", python).returncode == 3
    assert [path.read_bytes() for path in target.parent.iterdir()] == [b"old"]


def test_problem_names_the_path_and_not_the_temporary_name(python: Path) -> None:
    done = receive(Path("/proc/busbw.pyz"), b"data", python)
    error = done.stderr.decode()
    assert done.returncode and "/proc/busbw.pyz." in error
    answer = remote.CommandResult("h1", done.returncode, b"", error)
    problem = deploy._problem(answer, "/proc/busbw.pyz")
    assert "/proc/busbw.pyz" in problem and "busbw.pyz." not in problem
