"""Connections from a stranger, which is not a peer: `python stranger.py KIND ADDRESS PORT [TOKEN]`;
they stay until standard input ends.

Prints one line of JSON when all are made: what came back on the first.
"""

import json
import random
import resource
import socket
import struct
import sys

CROWD = 1000
HELLO_BYTES, TOKEN_BYTES = 64, 16


def hello(token: bytes) -> bytes:
    """A hello: magic, version 3, stream 0, the connection's nonce, the token."""
    return (b"bBw\x01" + struct.pack("<HHQ", 3, 0, 7) + token).ljust(HELLO_BYTES, b"\0")


def say(kind: str, token: bytes) -> bytes:
    """The bytes that this kind of stranger sends."""
    random_bytes = random.Random(5).randbytes(1 << 20)
    return {
        "garbage": random_bytes,
        "half a hello": hello(token)[: HELLO_BYTES // 2],
        "wrong token": hello(bytes(TOKEN_BYTES)) + random_bytes,
        "right token": hello(token),
    }[kind]


def _connect(address: str, port: int, waits: bool) -> socket.socket:
    """A connection. A kind that does not wait may be refused, or not yet connected."""
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    connection.settimeout(5 if waits else 0)
    if waits:
        connection.connect((address, port))
    else:
        connection.connect_ex((address, port))
    return connection


def main() -> None:
    """Connect, send, report, hold."""
    kind, address, port, *token_words = sys.argv[1:]
    token = bytes.fromhex(token_words[0]) if token_words else bytes(TOKEN_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    if kind == "scanner":
        for _ in range(50):
            socket.create_connection((address, int(port)), 5).close()
        print(json.dumps({"back": ""}), flush=True)
        return
    held = [
        _connect(address, int(port), waits=kind != "crowd")
        for _ in range(CROWD if kind == "crowd" else 8)
    ]
    received = b""
    for connection in held if kind != "crowd" else []:
        connection.settimeout(3)
        try:
            connection.sendall(say(kind, token))
        except OSError:  # dropped while it sent, as it should be
            continue
    if kind in ("right token", "wrong token"):
        try:
            received = held[0].recv(64)
        except OSError:
            received = b""
    print(json.dumps({"back": received.hex()}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
