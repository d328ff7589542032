"""A process that cleans up after a job whose busbw was killed by SIGKILL, and so cannot do it.

The launcher then gets SIGTERM, but mpirun often leaves its directories and shared memory.
"""

import contextlib
import os
import signal
import time
import warnings
from pathlib import Path
from types import FrameType

from busbw.host import process
from busbw.launch.cleanup import Cleanup

LAUNCHER_S = 5.0  # for the launcher to end its ranks
_POLL_S = 0.05
_CHUNK = 1 << 12


class Guard:
    """Watches this process from the start of the launcher of `job` until `dismiss`."""

    def __init__(self, job: Cleanup) -> None:
        waits, self._until_killed = os.pipe()
        with warnings.catch_warnings():
            # of forks with threads: the child uses none of their locks
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            try:
                _clean_up_after(waits, job)
            finally:
                os._exit(0)
        os.close(waits)
        self._job = job
        job.on_record = self._send

    def _send(self, path: str) -> None:
        """The guard is to remove this too."""
        with contextlib.suppress(OSError):  # the guard was killed
            os.write(self._until_killed, f"{path}\n".encode())

    def dismiss(self) -> None:
        """This process cleans up itself."""
        self._job.on_record = lambda _path: None
        process.kill(self._pid)
        os.waitpid(self._pid, 0)
        os.close(self._until_killed)


def _clean_up_after(waits: int, job: Cleanup) -> None:
    """Wait until the other end of the pipe is closed by the kernel, then end what the launcher
    leaves.
    """
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)
    os.dup2(waits, 0)
    # a reader of this process's output must see its end
    for entry in list(Path("/proc/self/fd").iterdir()):
        if entry.name != "0":
            with contextlib.suppress(OSError):
                os.close(int(entry.name))
    paths = b""
    while data := os.read(0, _CHUNK):
        paths += data
    for path in paths.decode().splitlines():
        job.add(path)
    job.record()
    end = time.monotonic() + LAUNCHER_S
    while process.state(job.launcher) not in process.ENDED and time.monotonic() < end:
        time.sleep(_POLL_S)
    job.kill_remaining()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Go on."""
