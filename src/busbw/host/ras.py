"""A client of NCCL's RAS service (NCCL 2.24 and newer), which reports the status of a running job.

Lines over TCP to 127.0.0.1:28028, or NCCL_RAS_ADDR, on any host of the job: the answer to `CLIENT
PROTOCOL 2` is `SERVER PROTOCOL n`, to `TIMEOUT seconds` it is `OK`, and to `STATUS` it is text
until the connection closes (nccl: src/ras/client.cc). From 2.28.7 on, `SET FORMAT json` is answered
with `OK`, and STATUS with JSON. NCCL_RAS_ENABLE=0 disables the service.
"""

import math
import os
import socket
import time
from collections.abc import Mapping

from busbw.host.source import Unavailable

PORT = 28028
PROTOCOL = 2
MAX_BYTES = 64 << 20  # JSON has about 500 bytes for each rank of each communicator
GREETING_S = 0.3


def address(environ: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Host and port of this process's RAS service.

    Unavailable if it is disabled or NCCL_RAS_ADDR is invalid.
    """
    environ = os.environ if environ is None else environ
    if environ.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        raise Unavailable("NCCL RAS is disabled (NCCL_RAS_ENABLE=0)")
    text = environ.get("NCCL_RAS_ADDR", "").strip() or f"127.0.0.1:{PORT}"
    host_port = host_and_port(text)
    if host_port is None:
        raise Unavailable(f"NCCL_RAS_ADDR={text} is not HOST:PORT")
    return host_port


def host_and_port(text: str) -> tuple[str, int] | None:
    """Host and port of `h1:28028` or `[::1]:28028`; None for other texts."""
    host, _, port = text.rpartition(":")
    if host and port.isdecimal() and int(port) < 1 << 16:
        return host.strip("[]"), int(port)
    return None


def status(where: tuple[str, int], limit_s: float, *, json: bool = False) -> str:
    """The report of the service at the host and port `where`, as text.

    With `json` it is JSON if NCCL has that format. Unavailable if no complete answer comes within
    `limit_s` seconds.

    All processes of a host listen on one port, and the kernel picks one for each connection. A
    stopped process accepts it and stays silent, so the connection is retried.
    """
    name = f"{where[0]}:{where[1]}"
    deadline = time.monotonic() + limit_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            with socket.create_connection(where, timeout=max(left_s, 0.01)) as connection:
                return _report(connection, name, deadline, json=json)
        except _Silent:
            if left_s <= GREETING_S:
                raise Unavailable(f"NCCL RAS at {name}: no process answers") from None
        except OSError as error:
            raise Unavailable(f"NCCL RAS at {name}: {error.strerror or error}") from error


class _Silent(Exception):
    """The process that accepted the connection does not send its greeting."""


def _report(connection: socket.socket, name: str, deadline: float, *, json: bool) -> str:
    try:
        greeting = _ask(
            connection, f"CLIENT PROTOCOL {PROTOCOL}", min(deadline, time.monotonic() + GREETING_S)
        )
    except TimeoutError:
        raise _Silent from None
    if not greeting.upper().startswith("SERVER PROTOCOL "):
        raise Unavailable(f"{name} is not NCCL RAS: it answers {greeting[:40]!r}")
    # NCCL's own timeout for ranks must expire before ours.
    timeout_s = max(math.ceil(deadline - time.monotonic()) - 1, 1)
    reply = _ask(connection, f"TIMEOUT {timeout_s}", deadline)
    if reply.upper() != "OK":
        raise Unavailable(f"NCCL RAS at {name} refuses: {reply[:40]!r}")
    if json:
        # Earlier versions answer with an error, and then with text.
        _ask(connection, "SET FORMAT json", deadline)
    connection.sendall(b"STATUS\n")
    return _until_end(connection, deadline)


def _ask(connection: socket.socket, request: str, deadline: float) -> str:
    connection.sendall(f"{request}\n".encode())
    reply = b""
    while not reply.endswith(b"\n") and len(reply) < MAX_BYTES:
        data = _receive(connection, deadline)
        if not data:
            break
        reply += data
    return reply.decode(errors="replace").strip()


def _until_end(connection: socket.socket, deadline: float) -> str:
    """Everything until the connection closes, or what arrived before the deadline."""
    reply = bytearray()
    try:
        while len(reply) < MAX_BYTES:
            data = _receive(connection, deadline)
            if not data:
                break
            reply += data
    except TimeoutError:
        if not reply:
            raise
    return reply.decode(errors="replace").strip()


def _receive(connection: socket.socket, deadline: float) -> bytes:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    connection.settimeout(left_s)
    return connection.recv(1 << 16)
