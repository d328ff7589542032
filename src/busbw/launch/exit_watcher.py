"""Records which rank of this host exited first: the launcher may only report that a rank did."""

import os
import select
import threading

from busbw.host import process


class ExitWatcher:
    """Watches processes from a thread, since the others exit within milliseconds of the first.

    `order` lists ranks as they exit.
    """

    def __init__(self) -> None:
        self.order: list[int] = []
        self._poll = select.epoll()
        self._ranks: dict[int, int] = {}  # descriptor: rank
        self._thread: threading.Thread | None = None

    def watch(self, rank: int, pid: int) -> None:
        """Start watching. Does nothing if the process has exited or the kernel has no pidfd."""
        descriptor = process.watch(pid)
        if descriptor is None:
            return
        self._ranks[descriptor] = rank
        self._poll.register(descriptor, select.EPOLLIN)
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="exit watcher", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        while True:
            # epoll also returns descriptors that are registered during the wait.
            for descriptor, _ in self._poll.poll():
                self._poll.unregister(descriptor)
                os.close(descriptor)
                self.order.append(self._ranks.pop(descriptor))
