"""Reads that block while a process or a server hangs, given up after a while: for programs that
must not hang with it.

A process that hangs in the kernel may hold the lock of its memory, which its `cmdline`, `environ`
and `maps` in /proc need.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

LIMIT_S = 1.0

Result = TypeVar("Result")


class _Reader:
    """A thread that reads. One that hangs ends with this process."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        Thread(target=self._work, name="reader", daemon=True).start()

    def begin(self, read: Callable[[], Any]) -> "Future[Any]":
        answer: Future[Any] = Future()
        self._asked.put((read, answer))
        return answer

    def _work(self) -> None:
        while True:
            read, answer = self._asked.get()
            try:
                answer.set_result(read())
            except Exception as error:  # noqa: BLE001 - raised by the one who waits
                answer.set_exception(error)


_idle: list[_Reader] = []
_silent: dict[str, "Future[Any]"] = {}  # by subject


def _after_fork() -> None:
    """The threads are not there."""
    _idle.clear()
    _silent.clear()


os.register_at_fork(after_in_child=_after_fork)


def answer(subject: str, read: Callable[[], Result]) -> Result:
    """What `read` returns, or what it raises.

    TimeoutError, which is an OSError, if that takes longer than LIMIT_S.

    While it goes on, other reads of the same `subject` are not begun and raise it at once.
    """
    earlier = _silent.get(subject)
    if earlier is not None and not earlier.done():
        raise TimeoutError(f"{subject} does not answer")
    _silent.pop(subject, None)
    try:
        reader = _idle.pop()
    except IndexError:
        reader = _Reader()
    future = reader.begin(read)
    try:
        result: Result = future.result(LIMIT_S)
        return result
    finally:
        if future.done():
            _idle.append(reader)
        else:
            _silent[subject] = future
