"""Where nobody reads what busbw writes, or no room is left for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "run all_reduce --engine sim -n 2 -e 1M"


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script with `busbw` as a command."""
    known = f'set -o pipefail; busbw() {{ "{sys.executable}" -m busbw "$@"; }}; '
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(["bash", "-c", known + script], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "run --help", "history list --help", "--version", "engines", RUN])
def test_an_answer_for_which_there_is_no_room_is_told(tmp_path: Path, words: str, unbuffered: str) -> None:
    done = shell(f"busbw {words} > /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr.splitlines()[0]) == (3, "error: stdout: No space left on device")


@pytest.mark.parametrize("words", ["--help", "engines", RUN])
def test_a_reader_who_leaves_at_once_is_no_failure(tmp_path: Path, words: str) -> None:
    done = shell(f"busbw {words} | true", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_was_asked_for_is_complete_though_nobody_reads_the_table(tmp_path: Path) -> None:
    done = shell(f"busbw {RUN} -N 20 --json r.json | head -1", tmp_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert done.stderr == "note: stdout was closed; measuring continues for r.json (Ctrl-C ends it)\n"
    result = json.loads((tmp_path / "r.json").read_bytes())
    assert (result["complete"], result["rows"][-1]["size_bytes"]) == (True, 1 << 20)


def test_a_measurement_is_not_given_up_for_want_of_room_for_its_talk(tmp_path: Path) -> None:
    done = shell(f"busbw {RUN} -N 20 --json r.json 2> /dev/full | head -1", tmp_path)
    assert done.returncode == 0
    assert json.loads((tmp_path / "r.json").read_bytes())["complete"] is True
    assert shell("busbw run nothing 2> /dev/full", tmp_path).returncode == 2
