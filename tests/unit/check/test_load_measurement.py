"""Measurements in processes of their own: real programs that hang and ignore SIGTERM, with what
they started.
"""

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread, main_thread
from typing import NoReturn

import pytest

from busbw.check.load.measurement import run_measurement
from busbw.host.limited import within
from busbw.host.source import LiveMachine, Reading, Source

STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
alive = os.open(os.environ["ALIVE"], os.O_WRONLY)
if os.fork():
    os.write(alive, b"started")
while True:
    signal.pause()
"""


class GivenUp(Exception):
    """The reason for the parent to abandon its child."""


@pytest.fixture
def alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A pipe that the stubborn program and its child hold open, and to which it writes when both
    are there.
    """
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("ALIVE", str(fifo))
    return os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)


def measure(source: Source) -> Reading:
    return source.call("load", run)


def run() -> str:
    return str(run_measurement("stubborn", 1, 600, int, what="it"))


def give_up(_number: int, _frame: object) -> NoReturn:
    raise GivenUp


def after_the_start(alive: int, action: Callable[[], None]) -> None:
    """Call `action` when the program and its child run."""

    def wait() -> None:
        select.select([alive], [], [], 60)
        action()

    Thread(target=wait, daemon=True).start()


def ended(alive: int) -> bool:
    """Whether all that held the pipe have ended."""
    assert os.read(alive, 7) == b"started"
    return bool(select.select([alive], [], [], 5)[0]) and os.read(alive, 1) == b""


def test_nothing_is_left_of_an_abandoned_measurement(
    alive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGALRM, give_up)
    after_the_start(alive, lambda: signal.pthread_kill(main_thread().ident or 0, signal.SIGALRM))
    try:
        with pytest.raises(GivenUp):
            within(measure, LiveMachine(), limit_s=600)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended(alive)


def test_nothing_is_left_of_a_measurement_whose_parent_crashes(alive: int) -> None:
    def crash() -> str:
        after_the_start(alive, lambda: os.kill(os.getpid(), signal.SIGKILL))
        return run()

    reason = within(lambda source: source.call("load", crash), LiveMachine(), limit_s=600).reason
    assert reason == "load: the process that read it ended with SIGKILL"
    assert ended(alive)


def test_a_measurement_that_does_not_end_is_killed_at_its_limit(alive: int) -> None:
    assert (
        run_measurement("stubborn", 1, 0.0, int, what="the test")
        == "the test did not end within 0 s"
    )
    os.set_blocking(alive, True)
    assert os.read(alive, 100) in (b"", b"started"), "whether or not it had started"
    assert os.read(alive, 1) == b""


def test_a_failed_measurement_reports_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(
        "import sys; print('7' if sys.argv[1] == '1.5' else 'no answer'); sys.exit('\\nno GPU\\n')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_measurement("failing", 1.5, 60, int, what="the test") == 7
    assert (
        run_measurement("failing", 2, 60, int, what="the test")
        == "the test ended with exit code 1: no GPU"
    )
