"""Signals while a job runs, and when it has ended."""

import os
import signal
from collections.abc import Iterator

import pytest

from busbw.launch import job

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """The default action, also where the tests run under nohup, which ignores SIGHUP."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_ends_the_job_and_later_ones_are_ignored(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as ended, job.terminable():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_was_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with job.terminable():
        os.kill(os.getpid(), signal.SIGHUP)


def test_a_signal_while_the_handlers_are_put_back_changes_nothing() -> None:
    with job.terminable():
        handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)
    assert handler(signal.SIGTERM, None) is None
