"""A process of this host that is watched until its end."""

import os
import platform
import select
import time
from pathlib import Path
from threading import Thread

from busbw.host import process

NOTED_S = 0.05  # until the thread has run that notes an end, on a busy machine


class LocalProcess:
    """A process that runs now; its pid alone may be another one's later."""

    def __init__(self, pid: int, *, is_python: bool = True) -> None:
        self.pid, self.is_python = pid, is_python
        self.started = process.start_time(pid)
        self.end_s: float | None = None  # when it was seen to end, at once
        self.signal = 0  # that killed it, if that was seen before its parent collected it
        self.code = 0  # with which it exited, if that was
        self._stopped_s: float | None = None
        self._resumed_s: float | None = None
        self._watching: Thread | None = None
        # nothing sees the end of its own process
        descriptor = None if pid == os.getpid() else process.watch(pid)
        if descriptor is not None:
            self._watching = Thread(target=self._wait_for_end, args=(descriptor,), daemon=True)
            self._watching.start()

    def _wait_for_end(self, descriptor: int) -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
        end_s = time.monotonic()
        self.signal, self.code = process.exit_status(self.pid)
        self.end_s = end_s
        os.close(descriptor)

    def ended_s(self) -> float | None:
        """When it was seen to end, of one that is gone; None if that was not seen."""
        if self._watching:
            self._watching.join(NOTED_S)
        return self.end_s

    def state(self) -> str:
        """Its letter of proc(5), as `process.state` has it."""
        if process.start_time(self.pid) != self.started:
            return process.GONE
        return process.state(self.pid)

    def stopped_s(self, state: str | None, now_s: float) -> float:
        """For how long it was seen stopped."""
        if state not in process.STOPPED:
            self._resumed_s = self._resumed_s if self._stopped_s is None else now_s
            self._stopped_s = None
            return 0.0
        self._stopped_s = now_s if self._stopped_s is None else self._stopped_s
        return now_s - self._stopped_s

    def resumed_s(self, now_s: float) -> float | None:
        """Since it was seen to run again, after `stopped_s` had seen it stopped."""
        return None if self._resumed_s is None else now_s - self._resumed_s


def owner(path: Path, host: str, pid: int) -> LocalProcess | None:
    """The process of this host that writes a file; None if it is of another host or container, or
    has ended.

    Containers with one name of the host may have the same pid. The owner has the file mapped, or
    open on a file system of a network.
    """
    if host != platform.node() or not process.start_time(pid):
        return None
    try:
        inode = path.stat().st_ino
        mapped = process.read_memory_file(pid, "maps").decode(errors="replace")
        is_python = "/python" in mapped or "libpython" in mapped
        opened = Path(f"/proc/{pid}/fd").iterdir()
        if any(f" {inode} " in line and path.name in line for line in mapped.splitlines()) or any(
            one.exists() and one.stat().st_ino == inode for one in opened
        ):
            return LocalProcess(pid, is_python=is_python)
    except PermissionError:  # another user's
        return LocalProcess(pid)
    except OSError:
        pass
    return None
