"""What runs on each host for the launch doctor.

`python -m busbw.check.doctor.node identity|connect` reads JSON from stdin and prints JSON. It uses
only the standard library, so it also runs if busbw's dependencies are incomplete.
"""

import contextlib
import errno
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from busbw.core.version import __version__
from busbw.host.addresses import local, mtu

LARGE_PACKETS_LOST = (
    "small packets pass and large ones are lost: a port on the path has a smaller MTU"
)
_RETRY_S = 0.2
# At once: half of the descriptors that a process usually may have.
_MAX_CONNECTIONS = 512
_HELLO = 32  # bytes of the code that a connection begins with
_BULK = 256 << 10  # bytes in each direction: several packets at any MTU
# Errors of accept() after which another connection may be accepted.
_PASSING_ERRORS = (
    errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED,
)  # fmt: skip
_BULK_S = 4.0  # for them; they take milliseconds, and a lost packet is sent again within a second


def identity(asked: dict[str, list[str]]) -> dict[str, object]:
    """This host's name, addresses and number of GPUs, and what it resolves `asked["names"]` to."""
    hostname = socket.gethostname()
    addresses = {
        name: str(address)
        for name, address in local().items()
        if address and not address.ip.is_loopback
    }
    return {
        "hostname": hostname,
        "busbw": __version__,
        "addresses": addresses,
        "mtus": {name: mtu(name) for name in addresses},
        "gpus": _gpus(),
        "names": {name: _lookup(name) for name in [*asked["names"], hostname]},
    }


def _gpus() -> int:
    """The GPUs that the driver has made devices of, unless the environment hides all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return 0
    return sum(path.name[len("nvidia") :].isdecimal() for path in Path("/dev").glob("nvidia*"))


def _lookup(name: str) -> list[str]:
    """The IPv4 addresses of a name; empty if it cannot be resolved."""
    try:
        entries = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(address) for *_, (address, *_) in entries})


def connect(asked: dict[str, object]) -> dict[str, object]:
    """Listen on the addresses of `asked["own"]`, and connect to all of `asked["peers"]`.

    That takes `asked["seconds"]` at most. `own` is [[address, port]], `peers` {label: [address,
    port]}. A connection proves with `token` that it belongs to this
    test; any other is closed. Returns the labels that failed, with the reason.
    """
    token, seconds = str(asked["token"]).encode(), float(str(asked["seconds"]))
    deadline = time.monotonic() + seconds
    listen_on: list[list[object]] = asked["own"]  # type: ignore[assignment]
    peers: dict[str, list[object]] = asked["peers"]  # type: ignore[assignment]
    problems: dict[str, str] = {}
    with contextlib.ExitStack() as opened:
        for address, port in listen_on:
            try:
                server = socket.create_server((str(address), int(str(port))))
                listening = opened.enter_context(server)
            except OSError as error:
                problems[f"listen {address}"] = os.strerror(error.errno or 0)
                continue
            threading.Thread(target=_answer, args=(listening, token, deadline), daemon=True).start()
        failed: dict[str, str] = {}
        callers = [
            threading.Thread(target=_call, args=(label, peer, token, deadline, failed))
            for label, peer in peers.items()
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        time.sleep(max(0.0, min(deadline - time.monotonic(), float(str(asked["linger"])))))
    return {"failed": failed, "problems": problems}


def _code(token: bytes, word: bytes) -> bytes:
    return hmac.new(token, word, hashlib.sha256).digest()


def _answer(listening: socket.socket, token: bytes, deadline: float) -> None:
    """Answer each connection that has the code, _MAX_CONNECTIONS at once."""
    listening.settimeout(_RETRY_S)
    waiting = threading.Semaphore(_MAX_CONNECTIONS)
    while time.monotonic() < deadline:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        except OSError as error:
            if error.errno not in _PASSING_ERRORS:
                return
            time.sleep(_RETRY_S)  # strangers hold all descriptors, for a second each
            continue
        if waiting.acquire(blocking=False):
            threading.Thread(target=_serve, args=(connection, token, waiting), daemon=True).start()
        else:
            connection.close()  # a peer tries again


def _serve(connection: socket.socket, token: bytes, waiting: threading.Semaphore) -> None:
    try:
        with connection, contextlib.suppress(OSError):
            _greet(connection, token)
    finally:
        waiting.release()


def _greet(connection: socket.socket, token: bytes) -> None:
    connection.settimeout(1)
    if hmac.compare_digest(connection.recv(_HELLO), _code(token, b"hello")):
        connection.settimeout(_BULK_S)
        connection.sendall(_code(token, b"here"))
        if _receive_bulk(connection):
            connection.sendall(bytes(_BULK))


def _receive_bulk(connection: socket.socket) -> bool:
    """Read up to _BULK bytes, and return whether all arrived."""
    left = _BULK
    while left and (part := connection.recv(left)):
        left -= len(part)
    return not left


def _call(
    label: str, peer: list[object], token: bytes, deadline: float, failed: dict[str, str]
) -> None:
    """Connect until it works or the time is over; a peer may start later."""
    reason = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(
                (str(peer[0]), int(str(peer[1]))), timeout=left
            ) as connection:
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                connection.sendall(_code(token, b"hello"))
                if hmac.compare_digest(connection.recv(_HELLO), _code(token, b"here")):
                    reason = _exchange_bulk(connection)
                    if reason:
                        break
                    return
                reason = "another program answered"
        except TimeoutError:
            reason = "no answer: packets are dropped, perhaps by a firewall"
        except OSError as error:
            reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
        time.sleep(_RETRY_S)
    failed[label] = reason


def _exchange_bulk(connection: socket.socket) -> str:
    """Why large packets do not pass in both directions; '' if they do."""
    connection.settimeout(_BULK_S)
    with contextlib.suppress(TimeoutError):
        connection.sendall(bytes(_BULK))
        if _receive_bulk(connection):
            return ""
    return LARGE_PACKETS_LOST


WORK: dict[str, Callable[..., dict[str, object]]] = {"identity": identity, "connect": connect}


def main() -> None:
    """The work that the first argument names, on the JSON of stdin."""
    print(json.dumps(WORK[sys.argv[1]](json.load(sys.stdin))))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
