"""The processes of an elastic job and the messages between them.

Messages are lines of JSON over a socket pair that a worker inherits. Nothing listens, so no other
process can connect. `WorkerProcess` is the launcher's side: the process of a worker and its
connection. `join_world` and `has_new_world` are the worker's side, which asks the launcher for its
rank in the next world.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from busbw.core.errors import UsageError
from busbw.host.process import die_with_parent

VARIABLE = "BUSBW_ELASTIC_SOCKET"  # the number of the worker's descriptor

# READY: a worker waits for a world. The launcher answers with WORLD, or with LEAVE if the worker is
# to end. CHANGED: the launcher informs rank 0 that the workers should change.
READY, WORLD, LEAVE, CHANGED = "ready", "world", "leave", "changed"
_CHUNK = 1 << 16


def send(connection: socket.socket, kind: str, files: Sequence[int] = (), **content: Any) -> None:
    """Send a message, with descriptors of open files.

    Does nothing if the other process has ended, which is noticed elsewhere.
    """
    with contextlib.suppress(OSError):
        socket.send_fds(connection, [json.dumps({"kind": kind, **content}).encode() + b"\n"], files)


class Reader:
    """Reads messages from a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._buffer = connection, b""
        self.files: list[int] = []  # descriptors that have arrived

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that have arrived. Waits for data. None: the other process has ended."""
        try:
            data, files, _, _ = socket.recv_fds(self._connection, _CHUNK, 1)
        except OSError:
            return None
        if not data:
            return None
        self.files += files
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]


class WorkerState(Enum):
    """The states of a worker."""

    STARTING = "starting"
    READY = "ready"  # it waits for a world
    RUNNING = "running"  # it is in the current world
    LEAVING = "leaving"  # it was asked to end


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One worker process on a slot."""

    slot: int
    process: "subprocess.Popen[bytes]"
    link: socket.socket
    reader: Reader
    state: WorkerState = WorkerState.STARTING
    since_s: float = field(default_factory=time.monotonic)  # when the state began
    rank: int = -1  # in the current world
    killed: bool = False  # the launcher has killed it, and it will end soon

    def __str__(self) -> str:
        """The name of the worker in messages."""
        rank = f" (rank {self.rank})" if self.rank >= 0 else ""
        return f"the worker on slot {self.slot}{rank}"

    def become(self, state: WorkerState) -> None:
        self.state, self.since_s = state, time.monotonic()

    def leave(self) -> None:
        """Ask the worker to end."""
        send(self.link, LEAVE)
        self.become(WorkerState.LEAVING)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and all processes of its group."""
        # PermissionError: it has changed its user.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Kill the remaining processes of an ended worker, and close its connection."""
        self.signal(signal.SIGKILL)
        self.link.close()


def start(argv: Sequence[str], environ: Mapping[str, str], slot: int) -> WorkerProcess:
    """Start a worker that inherits one end of a socket pair.

    Raises UsageError if the program cannot be run.
    """
    own_end, child_end = socket.socketpair()
    try:
        descriptor = child_end.fileno()
        process = subprocess.Popen(
            argv,
            env={**environ, "HOROVOD_ELASTIC": "1", VARIABLE: str(descriptor)},
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # also before it listens to the launcher
        )
    except OSError as error:
        own_end.close()
        raise UsageError(
            f"{argv[0]} cannot be run: {error.strerror}", "busbw horovodrun -np 2 python train.py"
        ) from error
    finally:
        child_end.close()
    return WorkerProcess(slot, process, own_end, Reader(own_end))


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


class _LauncherConnection:
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
        send(self._socket, READY)
        return self._worlds.get()

    def _listen(self) -> None:
        reader = Reader(self._socket)
        while True:
            received = reader.read()
            if received is None:
                break
            for message in received:
                kind = message.pop("kind")
                if kind == CHANGED:
                    self.changed.set()
                else:
                    # Cleared here, since a message about the new world may follow at once.
                    self.changed.clear()
                    world = None
                    if kind == WORLD:
                        world = World(**message, store=reader.files.pop(0))
                    self._worlds.put(world)
        with contextlib.suppress(OSError):  # the launcher may have been the reader
            sys.stderr.write("busbw horovod: the launcher has ended, so this worker ends too\n")
            sys.stderr.flush()
        os._exit(1)


_launcher: _LauncherConnection | None = None


def is_elastic() -> bool:
    """Whether `busbw horovodrun` started this process as a worker of an elastic job."""
    return _connection() is not None


def join_world() -> World | None:
    """Wait until the launcher has formed a world, and set the variables of this rank.

    None: the job is not elastic.

    Raises:
        SystemExit: the launcher does not need this worker any more.
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


def has_new_world() -> bool:
    """Whether the launcher has asked for a new world. It only asks rank 0."""
    launcher = _connection()
    return launcher is not None and launcher.changed.is_set()


def _connection() -> _LauncherConnection | None:
    global _launcher
    descriptor = os.environ.pop(VARIABLE, "")  # children must not inherit it
    if descriptor:
        _launcher = _LauncherConnection(int(descriptor))
    return _launcher
