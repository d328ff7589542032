"""Mutual authentication of a pair's two nodes: both ends prove that they know the token before any
data is sent.

The driver draws a token for each test and gives it to both nodes through the control channel. Each
end sends a random challenge and answers the other's with HMAC-SHA256 under the token. The token
itself is never sent over the tested network.
"""

import hmac
import secrets
import socket
import time
from collections.abc import Callable

_CHALLENGE_BYTES = 16
_DIGEST = "sha256"
_PROOF_BYTES = 32
_LISTENER, _CONNECTOR = b"listener", b"connector"
LIMIT_S = 5.0


class Refused(ConnectionError):
    """The other end did not prove that it knows the token."""


def token() -> str:
    """A new token, as text for JSON."""
    return secrets.token_hex(32)


def listener(connection: socket.socket, key: str, spoke: Callable[[], None] = lambda: None) -> None:
    """The listening end's part. Refused if the other end fails, or takes longer than LIMIT_S.

    `spoke` is called once the other end's challenge has come.
    """
    _prove(connection, key.encode(), _LISTENER, _CONNECTOR, spoke)


def connector(connection: socket.socket, key: str) -> None:
    """The connecting end's part. Refused if the other end fails, or takes longer than LIMIT_S."""
    _prove(connection, key.encode(), _CONNECTOR, _LISTENER)


def _prove(
    connection: socket.socket,
    key: bytes,
    own: bytes,
    other: bytes,
    spoke: Callable[[], None] = lambda: None,
) -> None:
    deadline = time.monotonic() + LIMIT_S
    connection.settimeout(LIMIT_S)
    try:
        mine = secrets.token_bytes(_CHALLENGE_BYTES)
        connection.sendall(mine)
        theirs = _exactly(connection, _CHALLENGE_BYTES, deadline)
        spoke()
        if own == _CONNECTOR:  # the listener proves itself last, so a stranger learns nothing
            connection.sendall(_proof(key, own, theirs, mine))
        given = _exactly(connection, _PROOF_BYTES, deadline)
        if not hmac.compare_digest(given, _proof(key, other, mine, theirs)):
            raise Refused("the other end does not have the token of this test")
        if own == _LISTENER:
            connection.sendall(_proof(key, own, theirs, mine))
    except Refused:
        raise
    except OSError as error:
        raise Refused(f"no proof within {LIMIT_S:g} s: {error}") from error


def _proof(key: bytes, role: bytes, challenge: bytes, own: bytes) -> bytes:
    return hmac.digest(key, role + challenge + own, _DIGEST)


def _exactly(connection: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        # one deadline for all parts: a stranger may send one byte at a time
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(count - len(data))
        if not part:
            raise Refused("the other end closed the connection before it proved itself")
        data += part
    return data
