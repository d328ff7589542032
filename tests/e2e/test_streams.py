"""Outputs that nobody reads, and files on a full disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("ranks_are_forks")

ROOT = Path(__file__).parents[2]
RUN = "run all_reduce --engine sim -np 2 -b 64 -e 64"
MORE = "run all_reduce --engine sim -np 2 -e 1M"
# of some rows, so that the reader leaves before the last
LONG = "run all_reduce --engine sim -np 2 -b 64 -e 32K -f 8"


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script with `busbw` as a command."""
    known = f'set -o pipefail; busbw() {{ "{sys.executable}" -m busbw "$@"; }}; '
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(
        ["bash", "-c", known + script],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("--help", ""),
        ("history add --help", "1"),
        ("--version", ""),
        ("check engines", "1"),
        (MORE, ""),
        (RUN, "1"),
    ],
)
def test_a_full_disk_under_stdout_is_reported(tmp_path: Path, words: str, unbuffered: str) -> None:
    done = shell(f"busbw {words} > /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        3,
        "error: stdout: No space left on device",
    )


@pytest.mark.parametrize("words", ["--help", "check engines", RUN])
def test_a_reader_who_leaves_at_once_is_no_failure(tmp_path: Path, words: str) -> None:
    done = shell(f"busbw {words} | true", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_json_file_is_complete_if_stdout_is_closed(tmp_path: Path) -> None:
    done = shell(f"busbw {LONG} -N 8 --json r.json | head -1", tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    notes = done.stderr.splitlines()
    told = [note for note in notes if "all sizes were measured once" not in note]  # if it is slow
    assert told == ["note: stdout was closed; measuring continues for r.json (Ctrl-C ends it)"]
    result = json.loads((tmp_path / "r.json").read_bytes())
    assert (result["complete"], result["rows"][-1]["size_bytes"]) == (True, 32 << 10)


def test_a_full_disk_under_stderr_does_not_stop_the_run(tmp_path: Path) -> None:
    done = shell(f"busbw {LONG} -N 8 --json r.json 2> /dev/full | head -1", tmp_path)
    assert done.returncode == 0
    assert json.loads((tmp_path / "r.json").read_bytes())["complete"] is True
    assert shell("busbw run nothing 2> /dev/full", tmp_path).returncode == 2
