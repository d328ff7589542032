"""Abandoned reads: opening a FIFO without a writer waits for ever, as do the files of a process
that hangs in the kernel.
"""

import os
from pathlib import Path
from queue import Queue

import pytest

from busbw.host import process


def test_a_hung_read_is_abandoned_and_not_repeated_until_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LIMIT_S", 0.01)
    stuck, begun = tmp_path / "stuck", Queue[int]()
    os.mkfifo(stuck)

    def read() -> bytes:
        begun.put(1)
        return stuck.read_bytes()

    for _ in range(3):
        with pytest.raises(TimeoutError):
            process.answer("it", read)
    begun.get(timeout=30)
    assert begun.empty()
    monkeypatch.setattr(process, "LIMIT_S", 30)
    assert process.answer("other", lambda: 7) == 7
    earlier = process._silent["it"]
    with stuck.open("wb"):  # now it answers
        pass
    assert earlier.result(30) == b""
    assert process.answer("it", lambda: 8) == 8


def test_the_exception_of_a_read_is_raised_and_its_thread_is_reused() -> None:
    process.answer("it", int)
    readers = list(process._idle)
    with pytest.raises(FileNotFoundError):
        process.answer("it", Path("/no/such/file").read_bytes)
    assert process.answer("it", lambda: 7) == 7
    assert process._idle == readers


def test_a_forked_process_has_its_own_readers() -> None:
    process.answer("it", int)
    child = os.fork()
    if child == 0:
        process.LIMIT_S = 30
        os._exit(process.answer("it", lambda: 7))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
