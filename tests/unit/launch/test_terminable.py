"""Signals while a job runs, and when it has ended."""

import os
import signal

import pytest

from busbw.launch import job


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_job_and_later_ones_are_ignored(number: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, job.terminable():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is before


def test_a_signal_while_the_handlers_are_put_back_changes_nothing() -> None:
    with job.terminable():
        handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)
    assert handler(signal.SIGTERM, None) is None
