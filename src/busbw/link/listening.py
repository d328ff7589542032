"""A listener for one test: bound to one address, it accepts only authenticated connections and
closes when it has them all.

When too many connections wait to prove themselves, the one that has waited longest without a word
makes room: strangers, however many, do not keep the peer out, who speaks at once.
"""

import contextlib
import socket
import threading
import time

from busbw.core.sizes import counted
from busbw.host.sockets import has_data
from busbw.link import authentication
from busbw.link.authentication import Refused

_MOST_PENDING = 32  # connections that have not proved themselves
_BACKLOG = 128  # that wait to be accepted
_POLL_S = 0.1
CONNECT_S = 5.0


class Listener:
    """Listens on an ephemeral port of `address`.

    `refused` counts connections that failed to authenticate.
    """

    def __init__(self, address: str, token: str) -> None:
        self._socket = socket.create_server((address, 0), backlog=_BACKLOG)
        self._token = token
        self._lock = threading.Lock()
        self._joined: list[socket.socket] = []
        # in order of age: whether it has said anything
        self._pending: dict[socket.socket, bool] = {}
        self._closed = False
        self.refused = 0
        self.port: int = self._socket.getsockname()[1]

    def accept(self, count: int, limit_s: float) -> list[socket.socket]:
        """`count` connections from the peer; stops listening.

        TimeoutError if they do not arrive in time.
        """
        deadline = time.monotonic() + limit_s
        self._socket.settimeout(_POLL_S)
        try:
            while time.monotonic() < deadline:
                with self._lock:
                    if len(self._joined) >= count:
                        self._closed = True
                        return self._joined
                with contextlib.suppress(TimeoutError):
                    self._take(self._socket.accept()[0])
        finally:
            self._socket.close()
        with self._lock:
            self._closed = True
            for connection in self._joined:
                connection.close()
            strangers = (
                f"; {counted(self.refused, 'other')} did not have the token" if self.refused else ""
            )
            raise TimeoutError(
                f"{len(self._joined)} of {count} connections arrived within {limit_s:g}"
                f" s{strangers}"
            )

    def _take(self, connection: socket.socket) -> None:
        """Hand a connection to a thread, so that a silent stranger does not delay the peer."""
        with self._lock:
            if len(self._pending) >= _MOST_PENDING:
                silent = (
                    each
                    for each, spoke in self._pending.items()
                    if not spoke and not has_data(each)
                )
                oldest = next(silent, next(iter(self._pending)))
                del self._pending[oldest]
                with contextlib.suppress(OSError):  # its thread sees the end and closes it
                    oldest.shutdown(socket.SHUT_RDWR)
            self._pending[connection] = False
        threading.Thread(target=self._examine, args=(connection,), daemon=True).start()

    def _spoke(self, connection: socket.socket) -> None:
        with self._lock:
            if connection in self._pending:
                self._pending[connection] = True

    def _examine(self, connection: socket.socket) -> None:
        try:
            authentication.listener(connection, self._token, lambda: self._spoke(connection))
        except Refused:
            connection.close()
            with self._lock:
                self.refused += 1
        else:
            with self._lock:
                if self._closed:
                    connection.close()
                else:
                    self._joined.append(connection)
        finally:
            with self._lock:
                self._pending.pop(connection, None)


def connect(
    source: tuple[str, str], address: str, port: int, token: str, limit_s: float
) -> socket.socket:
    """A connection to a listener from `source`: interface and address.

    OSError if it cannot be reached within `limit_s` and CONNECT_S, Refused if it is not the peer.

    With several interfaces in one network the kernel would use the first. Before Linux 5.7, only
    root can choose another.
    """
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(PermissionError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, source[0].encode())
        connection.bind((source[1], 0))
        connection.settimeout(min(limit_s, CONNECT_S))
        connection.connect((address, port))
        authentication.connector(connection, token)
    except OSError:
        connection.close()
        raise
    return connection
