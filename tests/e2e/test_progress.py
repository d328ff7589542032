"""On a terminal a run that prints nothing for a while says what it measures."""

import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.usefixtures("ranks_are_forks")
LIMIT_S = 100
LINE = re.compile(r"timing: 64M (out of|in) place(, about \d+ s left)?")


def on_a_terminal(*args: str) -> str:
    """The stderr of a run whose stderr is a terminal."""
    own, terminal = pty.openpty()
    line = [sys.executable, "-m", "busbw", "run", *args]
    run = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=terminal, stdin=subprocess.DEVNULL
    )
    os.close(terminal)
    text, end = b"", time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if select.select([own], [], [], 0.5)[0]:
            try:
                text += os.read(own, 65536)
            except OSError:  # the other end is closed
                break
        elif run.poll() is not None:
            break
    os.close(own)
    assert run.wait(LIMIT_S) == 0
    return text.decode()


def test_a_quiet_run_shows_size_phase_and_time_left() -> None:
    text = on_a_terminal(
        "all_reduce",
        "--engine",
        "mpi",
        "-np",
        "2",
        "-b",
        "64M",
        "-e",
        "64M",
        "--precision",
        "0.0001",
        "--max-time",
        "2.5",
    )
    shown = LINE.findall(text)
    assert shown
    assert any(left for _, left in shown), "the second placement is estimated from the first"


def test_no_progress_line_is_written_to_a_pipe() -> None:
    argv = shlex.split(
        "all_reduce --engine mpi -np 1 -b 64M -e 64M --precision 0.0001 --max-time 3"
    )
    done = subprocess.run(
        [sys.executable, "-m", "busbw", "run", *argv],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert not LINE.search(done.stderr + done.stdout)
