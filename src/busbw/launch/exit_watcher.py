"""Which process of this host ended first: its launcher may say no more than that one did."""

import os
import select
import threading

from busbw.host import process


class ExitWatcher:
    """Watches processes from a thread, because others follow the first to its end within milliseconds; `order` has their ranks."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self._poll = select.epoll()
        self._ranks: dict[int, int] = {}  # descriptor: rank
        self._thread: threading.Thread | None = None

    def watch(self, rank: int, pid: int) -> None:
        """From now on; nothing where the process has ended before or the kernel cannot tell."""
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
            for descriptor, _ in self._poll.poll():  # those that are registered meanwhile count too
                self._poll.unregister(descriptor)
                os.close(descriptor)
                self.order.append(self._ranks.pop(descriptor))
