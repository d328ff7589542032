"""A worker's side of an elastic job: it asks the launcher for its rank in the next world."""

import contextlib
import os
import queue
import socket
import sys
import threading
from dataclasses import dataclass

from busbw.horovod.elastic import messages


@dataclass(frozen=True, slots=True)
class World:
    """This process's place among the workers that now train together."""

    number: int  # counts worlds of the job from 1
    rank: int
    size: int
    local_rank: int  # the slot, which a worker keeps: scripts select a GPU by it once
    # Descriptor of the file through which the ranks find each other. It stays open, one per world:
    # a FileStore writes to its path when it is collected, which may be worlds later, and the path
    # must not have become that of another file.
    store: int


class _Launcher:
    """The connection to the launcher."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # for children that do not close it
        self._socket = socket.socket(fileno=descriptor)
        self._worlds: queue.Queue[World | None] = queue.Queue()
        self.changed = threading.Event()
        threading.Thread(target=self._listen, name="busbw-elastic", daemon=True).start()

    def next_world(self) -> World | None:
        """The next world; None if this worker is not in it.

        The launcher's limits apply, and its end ends this process.
        """
        messages.send(self._socket, messages.READY)
        return self._worlds.get()

    def _listen(self) -> None:
        reader = messages.Reader(self._socket)
        while (received := reader.read()) is not None:
            for message in received:
                kind = message.pop("kind")
                if kind == messages.CHANGED:
                    self.changed.set()
                else:
                    # here, since a message about the new world may follow at once
                    self.changed.clear()
                    self._worlds.put(
                        World(**message, store=reader.files.pop(0))
                        if kind == messages.WORLD
                        else None
                    )
        with contextlib.suppress(OSError):  # the launcher may have been the reader
            sys.stderr.write("busbw horovod: the launcher has ended, so this worker ends too\n")
            sys.stderr.flush()
        os._exit(1)


_launcher: _Launcher | None = None


def elastic() -> bool:
    """Whether `busbw horovodrun` started this process as a worker of an elastic job."""
    return _connection() is not None


def join() -> World | None:
    """Wait until the launcher has formed a world, and set the variables of this rank.

    None: the job is not elastic.

    Raises:
        SystemExit: the launcher needs this worker no more.
    """
    launcher = _connection()
    if launcher is None:
        return None
    world = launcher.next_world()
    if world is None:
        raise SystemExit(0)
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    values = (world.rank, world.size, world.local_rank, world.size, 0, 1)
    os.environ |= {f"HOROVOD_{name}": str(value) for name, value in zip(names, values, strict=True)}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host
    return world


def changed() -> bool:
    """Whether the launcher has asked for a new world. It tells rank 0 only."""
    launcher = _connection()
    return launcher is not None and launcher.changed.is_set()


def _connection() -> _Launcher | None:
    global _launcher
    descriptor = os.environ.pop(messages.VARIABLE, "")  # it is not for children
    if descriptor:
        _launcher = _Launcher(int(descriptor))
    return _launcher
