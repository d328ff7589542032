"""A lock of a folder between processes of one machine, which leaves no lock file behind."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.01


@contextlib.contextmanager
def locked(folder: Path, limit_s: float, refusal: Exception) -> Iterator[None]:
    """Hold the lock of an existing folder; raises `refusal` if it takes over `limit_s` seconds."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + limit_s
    try:
        while not _took(lock):
            if time.monotonic() > deadline:
                raise refusal
            time.sleep(POLL_S)
        yield
    finally:
        os.close(lock)


def _took(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
