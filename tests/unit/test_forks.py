"""`pytest --forks N`: each test has its result, also where the process that runs it ends."""

import os
import subprocess
import sys
from pathlib import Path

FORKS = Path(__file__).parents[1] / "forks.py"
TESTS = """
import os, signal
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def started(tmp_path_factory):
    yield tmp_path_factory.mktemp("started")
    with Path("ended").open("a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.mark.parametrize("number", range(3))
@pytest.mark.xdist_group("together")
def test_together(number, started):
    with Path("together").open("a") as file:
        file.write(f"{number} {os.getpid()}\\n")
    assert number < 2, "more than one"

@pytest.mark.parametrize("number", range(2))
@pytest.mark.xdist_group("killed")
def test_killed(number):
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.parametrize("number", range(4))
def test_alone(number, started):
    print("not seen")

def test_skipped():
    pytest.skip("no such thing")
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    (folder / "test_toy.py").write_text(TESTS)
    words = ["-m", "pytest", "-q", "-ra", "-p", "forks", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, *words, f"--rootdir={folder}", *options, "test_toy.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(FORKS.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


def test_every_test_has_its_result_also_where_its_process_is_killed(tmp_path):
    code, out = run(tmp_path, "--forks", "2")
    assert code == 1 and "3 failed, 6 passed, 1 skipped" in out, out
    for line in (
        "FAILED test_toy.py::test_together[2] - AssertionError: more than one",
        "FAILED test_toy.py::test_killed[0] - the process that ran it ended with signal 9",
        "FAILED test_toy.py::test_killed[1] - not run: the process ended with signal 9",
        "test_toy.py:29: no such thing",
    ):
        assert line in out, out
    assert "not seen" not in out
    lines = (tmp_path / "together").read_text().splitlines()
    numbers, processes = zip(*map(str.split, lines), strict=True)
    assert numbers == ("0", "1", "2") and len(set(processes)) == 1
    ended = (tmp_path / "ended").read_text().split()
    assert processes[0] in ended and len(ended) == len(set(ended)), "fixtures end once in each fork"


def test_no_group_begins_after_the_last_failure_that_is_allowed(tmp_path):
    code, out = run(tmp_path, "--forks", "1", "--maxfail", "1")
    assert code == 1 and "1 failed, 2 passed in" in out, out
