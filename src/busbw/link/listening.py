"""Authenticated connections between the two nodes of a pair.

`Listener` serves one test: bound to one address, it accepts only authenticated connections and
closes when it has them all. When too many connections wait to prove themselves, the one that has
been silent for longest is closed: the peer sends its challenge at once, so strangers, however many,
do not keep it out.

Both ends prove that they know the token of the test before any data is sent. The driver draws a
token for each test and gives it to both nodes through the control channel. Each end sends a random
challenge and answers the other's with HMAC-SHA256 under the token. The token itself is never sent
over the tested network.
"""

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable

from busbw.core.sizes import counted
from busbw.host.tcp_connections import has_data

_CHALLENGE_BYTES = 16
_DIGEST = "sha256"
_PROOF_BYTES = 32
_LISTENER, _CONNECTOR = b"listener", b"connector"
LIMIT_S = 5.0
_PENDING_LIMIT = 32  # connections that have not proved themselves
_BACKLOG = 128  # connections that wait to be accepted
_POLL_S = 0.1
CONNECT_S = 5.0


class Refused(ConnectionError):
    """The other end did not prove that it knows the token."""


def token() -> str:
    """A new token, as text for JSON."""
    return secrets.token_hex(32)


def prove_as_listener(
    connection: socket.socket, key: str, spoke: Callable[[], None] = lambda: None
) -> None:
    """The listening end's part. Refused if the other end fails, or takes longer than LIMIT_S.

    `spoke` is called once the other end's challenge has come.
    """
    _prove(connection, key.encode(), _LISTENER, _CONNECTOR, spoke)


def prove_as_connector(connection: socket.socket, key: str) -> None:
    """The connecting end's part. Refused if the other end fails, or takes longer than LIMIT_S."""
    _prove(connection, key.encode(), _CONNECTOR, _LISTENER)


def _prove(
    connection: socket.socket,
    key: bytes,
    role: bytes,
    other_role: bytes,
    spoke: Callable[[], None] = lambda: None,
) -> None:
    deadline = time.monotonic() + LIMIT_S
    connection.settimeout(LIMIT_S)
    try:
        challenge = secrets.token_bytes(_CHALLENGE_BYTES)
        connection.sendall(challenge)
        other_challenge = _receive(connection, _CHALLENGE_BYTES, deadline)
        spoke()
        if role == _CONNECTOR:  # the listener proves itself last, so a stranger learns nothing
            connection.sendall(_proof(key, role, other_challenge, challenge))
        proof = _receive(connection, _PROOF_BYTES, deadline)
        if not hmac.compare_digest(proof, _proof(key, other_role, challenge, other_challenge)):
            raise Refused("the other end does not have the token of this test")
        if role == _LISTENER:
            connection.sendall(_proof(key, role, other_challenge, challenge))
    except Refused:
        raise
    except OSError as error:
        raise Refused(f"no proof within {LIMIT_S:g} s: {error}") from error


def _proof(key: bytes, role: bytes, challenge: bytes, own_challenge: bytes) -> bytes:
    return hmac.digest(key, role + challenge + own_challenge, _DIGEST)


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Exactly `count` bytes. Refused if the other end closes the connection before."""
    data = b""
    while len(data) < count:
        # One deadline for all parts: a stranger may send one byte at a time.
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(count - len(data))
        if not part:
            raise Refused("the other end closed the connection before it proved itself")
        data += part
    return data


class Listener:
    """Listens on an ephemeral port of `address`.

    `refused` counts connections that failed to authenticate.
    """

    def __init__(self, address: str, token: str) -> None:
        self._socket = socket.create_server((address, 0), backlog=_BACKLOG)
        self._token = token
        self._lock = threading.Lock()
        self._joined: list[socket.socket] = []
        # Oldest first; the value is whether the other end has sent its challenge.
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
                    self._start_authentication(self._socket.accept()[0])
        finally:
            self._socket.close()
        with self._lock:
            self._closed = True
            for connection in self._joined:
                connection.close()
            message = f"{len(self._joined)} of {count} connections arrived within {limit_s:g} s"
            if self.refused:
                message += f"; {counted(self.refused, 'other')} did not have the token"
            raise TimeoutError(message)

    def _start_authentication(self, connection: socket.socket) -> None:
        """Hand a connection to a thread, so that a silent stranger does not delay the peer."""
        with self._lock:
            if len(self._pending) >= _PENDING_LIMIT:
                self._drop_oldest()
            self._pending[connection] = False
        threading.Thread(target=self._authenticate, args=(connection,), daemon=True).start()

    def _drop_oldest(self) -> None:
        """Close the oldest silent connection, or the oldest of all if none is silent."""
        silent = (
            connection
            for connection, spoke in self._pending.items()
            if not spoke and not has_data(connection)
        )
        oldest = next(silent, next(iter(self._pending)))
        del self._pending[oldest]
        with contextlib.suppress(OSError):  # its thread sees the end and closes it
            oldest.shutdown(socket.SHUT_RDWR)

    def _note_challenge(self, connection: socket.socket) -> None:
        with self._lock:
            if connection in self._pending:
                self._pending[connection] = True

    def _authenticate(self, connection: socket.socket) -> None:
        try:
            prove_as_listener(connection, self._token, lambda: self._note_challenge(connection))
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

    With several interfaces in one network the kernel would use the first, so the socket is bound
    to the interface. Before Linux 5.7 only root may do that.
    """
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(PermissionError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, source[0].encode())
        connection.bind((source[1], 0))
        connection.settimeout(min(limit_s, CONNECT_S))
        connection.connect((address, port))
        prove_as_connector(connection, token)
    except OSError:
        connection.close()
        raise
    return connection
