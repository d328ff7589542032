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
    """Host and port of this process's RAS service; Unavailable if it is disabled or
    NCCL_RAS_ADDR is invalid.
    """
    environ = os.environ if environ is None else environ
    if environ.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        raise Unavailable("NCCL RAS is disabled (NCCL_RAS_ENABLE=0)")
    text = environ.get("NCCL_RAS_ADDR", "").strip() or f"127.0.0.1:{PORT}"
    found = host_and_port(text)
    if found is None:
        raise Unavailable(f"NCCL_RAS_ADDR={text} is not HOST:PORT")
    return found


def host_and_port(text: str) -> tuple[str, int] | None:
    """Host and port of `h1:28028` or `[::1]:28028`; None for other texts."""
    host, _, port = text.rpartition(":")
    return (
        (host.strip("[]"), int(port)) if host and port.isdecimal() and int(port) < 1 << 16 else None
    )


def status(where: tuple[str, int], limit_s: float, *, json: bool = False) -> str:
    """The service's report as text; Unavailable if no complete answer comes within `limit_s`
    seconds.

    With `json` it is JSON if NCCL has that format.

    All processes of a host listen on one port, and the kernel picks one for each connection. A
    stopped process accepts it and stays silent, so the connection is retried.
    """
    deadline = time.monotonic() + limit_s
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.create_connection(where, timeout=max(left, 0.01)) as line:
                return _report(line, f"{where[0]}:{where[1]}", deadline, json=json)
        except _Silent:
            if left <= GREETING_S:
                raise Unavailable(
                    f"NCCL RAS at {where[0]}:{where[1]}: no process answers"
                ) from None
        except OSError as error:
            raise Unavailable(
                f"NCCL RAS at {where[0]}:{where[1]}: {error.strerror or error}"
            ) from error


class _Silent(Exception):
    """The process that accepted the connection does not send its greeting."""


def _report(line: socket.socket, name: str, deadline: float, *, json: bool) -> str:
    try:
        greeting = _ask(
            line, f"CLIENT PROTOCOL {PROTOCOL}", min(deadline, time.monotonic() + GREETING_S)
        )
    except TimeoutError:
        raise _Silent from None
    if not greeting.upper().startswith("SERVER PROTOCOL "):
        raise Unavailable(f"{name} is not NCCL RAS: it answers {greeting[:40]!r}")
    # NCCL's own timeout for ranks must expire before ours.
    agreed = _ask(line, f"TIMEOUT {max(math.ceil(deadline - time.monotonic()) - 1, 1)}", deadline)
    if agreed.upper() != "OK":
        raise Unavailable(f"NCCL RAS at {name} refuses: {agreed[:40]!r}")
    if json:
        # earlier versions answer with an error, and then with text
        _ask(line, "SET FORMAT json", deadline)
    line.sendall(b"STATUS\n")
    return _until_end(line, deadline)


def _ask(line: socket.socket, request: str, deadline: float) -> str:
    line.sendall(f"{request}\n".encode())
    reply = b""
    while not reply.endswith(b"\n") and len(reply) < MAX_BYTES:
        data = _receive(line, deadline)
        if not data:
            break
        reply += data
    return reply.decode(errors="replace").strip()


def _until_end(line: socket.socket, deadline: float) -> str:
    """Everything until the connection closes, or what arrived before the deadline."""
    reply = bytearray()
    try:
        while len(reply) < MAX_BYTES and (data := _receive(line, deadline)):
            reply += data
    except TimeoutError:
        if not reply:
            raise
    return reply.decode(errors="replace").strip()


def _receive(line: socket.socket, deadline: float) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    line.settimeout(left)
    return line.recv(1 << 16)
