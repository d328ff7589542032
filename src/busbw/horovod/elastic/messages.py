"""Messages between the launcher of an elastic job and its workers: lines of JSON over a socket pair
that the worker inherits.

Nothing listens, so no other process can connect.
"""

import contextlib
import json
import socket
from collections.abc import Sequence
from typing import Any

VARIABLE = "BUSBW_ELASTIC_SOCKET"  # the number of the worker's descriptor

# A worker waits for a world. The launcher answers with a world or asks it to leave. It tells rank 0
# that the workers should change.
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
        self._connection, self._rest = connection, b""
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
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]
