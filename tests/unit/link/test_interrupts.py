"""Ctrl-C while threads work."""

import os
import signal
import threading

import pytest

from busbw.launch.signal_handlers import interrupt_deferred
from busbw.link import driver


def test_ctrl_c_while_threads_work_is_raised_after_the_wait_and_not_inside_it() -> None:
    handlers = []
    over = threading.Event()

    def work(number: int) -> int:
        handlers.append(signal.getsignal(signal.SIGINT))
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)
        return number

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        driver._map_threads(work, range(5), 2)
    assert signal.getsignal(signal.SIGINT) is before
    over.set()
    assert signal.default_int_handler not in handlers
    assert len(handlers) <= 2, "the rest is left"


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt_deferred() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
        assert not interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def test_answers_keep_the_order_of_the_items_and_an_error_is_raised() -> None:
    assert driver._map_threads(lambda number: number * number, range(100), 7) == [
        number * number for number in range(100)
    ]
    assert driver._map_threads(str, [], 3) == []
    with pytest.raises(ZeroDivisionError):
        driver._map_threads(lambda number: 1 // number, range(3), 2)
