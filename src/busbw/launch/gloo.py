"""Notices that the ranks of a command use Gloo and not NCCL, by the names that PyTorch and Gloo
give to their threads.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

from busbw.host import process

NAME = "gloo"
GLOO = ("pt_gloo", "gloo_")  # pt_gloo_runloop of PyTorch, gloo_tcp_loop of Gloo
NCCL = "pt_nccl"  # pt_nccl_watchdg; a job may use both: Gloo for its control
# so many looks a second apart, then one a minute: most jobs join in their first minute
OFTEN, OFTEN_S, SELDOM_S = 60, 1.0, 60.0
SEEN = 2  # looks in a row, as a rank that uses both may create Gloo's threads first


def named(words: Sequence[str]) -> str:
    """The word of a command line that chooses Gloo: `gloo` of `--backend gloo`,
    `--dist-backend=gloo`; '' if none does.
    """
    return next((word for word in words if word.rpartition("=")[2] == NAME), "")


class Watch:
    """Looks at the processes below `pid` until one uses Gloo alone, which `tell` gets, or until
    `recorded()`.
    """

    def __init__(self, pid: int, recorded: Callable[[], bool], tell: Callable[[int], None]) -> None:
        self.rank = 0
        self._pid, self._recorded, self._tell = pid, recorded, tell
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gloo watch", daemon=True)

    def __enter__(self) -> "Watch":
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        seen = 0
        for look in itertools.count():
            if self._end.wait(OFTEN_S if look < OFTEN or seen else SELDOM_S) or self._recorded():
                return
            found = rank(self._pid)
            seen = seen + 1 if found else 0
            if seen == SEEN:
                self.rank = found
                self._tell(found)
                return


def rank(pid: int) -> int:
    """A process below `pid` with threads of Gloo, 0 if there is none or any has threads of NCCL."""
    found = 0
    for one in _below(pid):
        names = process.threads(one)
        if any(name.startswith(NCCL) for name in names):
            return 0
        if any(name.startswith(GLOO) for name in names):
            found = found or one
    return found


def _below(pid: int) -> Iterator[int]:
    for child in process.children(pid):
        yield child
        yield from _below(child)
