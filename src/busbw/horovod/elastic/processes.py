"""The launcher's side of a worker: its process and its connection."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from busbw.core.errors import UsageError
from busbw.horovod.elastic import messages
from busbw.host.process import die_with_parent


class State(Enum):
    """What a worker does."""

    STARTING = "starting"
    READY = "ready"  # it waits for a world
    RUNNING = "running"  # it is in the current world
    LEAVING = "leaving"  # it was asked to end


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process on a slot."""

    slot: int
    process: "subprocess.Popen[bytes]"
    link: socket.socket
    reader: messages.Reader
    state: State = State.STARTING
    since_s: float = field(default_factory=time.monotonic)  # of the state
    rank: int = -1  # in the current world
    killed: bool = False  # by the launcher, and it will end soon

    def __str__(self) -> str:
        """As messages name it."""
        return f"the worker on slot {self.slot}" + (
            f" (rank {self.rank})" if self.rank >= 0 else ""
        )

    def become(self, state: State) -> None:
        """Change the state."""
        self.state, self.since_s = state, time.monotonic()

    def leave(self) -> None:
        """Ask it to end."""
        messages.send(self.link, messages.LEAVE)
        self.become(State.LEAVING)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and all processes of its group."""
        # it may have changed its user
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Remove what an ended worker leaves behind."""
        self.signal(signal.SIGKILL)
        self.link.close()


def start(argv: Sequence[str], environ: Mapping[str, str], slot: int) -> Worker:
    """Start a worker that inherits one end of a socket pair.

    Raises UsageError if the program cannot be run.
    """
    ours, theirs = socket.socketpair()
    try:
        descriptor = theirs.fileno()
        process = subprocess.Popen(
            argv,
            env={**environ, "HOROVOD_ELASTIC": "1", messages.VARIABLE: str(descriptor)},
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # also before it listens to the launcher
        )
    except OSError as error:
        ours.close()
        raise UsageError(
            f"{argv[0]} cannot be run: {error.strerror}", "busbw horovodrun -np 2 python train.py"
        ) from error
    finally:
        theirs.close()
    return Worker(slot, process, ours, messages.Reader(ours))
