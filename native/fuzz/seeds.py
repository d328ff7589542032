#!/usr/bin/env python3
"""The seeds of fuzzing: valid headers and handles, and scripts of correct peers.

`seeds.py FOLDER` writes them.
"""

import struct
import sys
from pathlib import Path

MAGIC = b"bBw\x01"


def frame(kind: int, words: tuple[int, int, int], chunk: int = 0) -> bytes:
    """A header of 32 bytes."""
    return struct.pack("<HBBI3Q", 0xB5B1, kind, 0, chunk, *words)


def address(ip: bytes, port: int, prefix: int) -> bytes:
    """An entry of a handle."""
    return struct.pack("<HBB", port, prefix, len(ip)) + ip


def handle(*entries: bytes) -> bytes:
    """128 bytes."""
    return struct.pack("<4sHBx16s", b"bBwH", 3, len(entries), bytes(range(16))) + b"".join(
        entries
    ).ljust(104, b"\0")


V4 = address(bytes([10, 1, 2, 3]), 4000, 24)
V6 = address(bytes([0xFD]) + bytes(14) + b"\x07", 9, 64)

# A script: streams and inline stream, modes, then actions with their numbers
# (crates/transport/tests/common/script.rs).
POST, WHOLE = [0x0A, 0], 0x10
SEEDS: dict[str, dict[str, bytes]] = {
    "frames": {
        "chunk": frame(1, (7, 1 << 20, 1 << 18), 1 << 16),
        "empty": frame(1, (1, 0, 0)),
        "ack": frame(2, (9, 8, 0)),
        "ready": frame(3, (0b11111, 0, 0)),
        "hello": MAGIC + struct.pack("<HHQ", 3, 2, 3) + bytes(range(16)) + bytes(32),
    },
    "handle": {"v4": handle(V4), "v6": handle(V6), "four": handle(V4, V6, V4, V6)},
    "stream": {
        "small": bytes([0, 0, *POST, 0, 3, 9, 0, *POST, 0, 4, 9, 0]),
        "chunks": bytes([3, 0, *POST, WHOLE, 8, 6, 0, *POST, WHOLE, 7, 5, 0, 15]),
        "early": bytes([2, 1, WHOLE, 8, 6, 0, 14, *POST, 14, 15]),
        "twice": bytes([2, 0, *POST, WHOLE, 8, 6, 3, 15]),
        "missing": bytes([2, 0, *POST, WHOLE, 8, 6, 2, 15]),
    },
    "sending": {
        "small": bytes([0, 0, 2, 0, 3, 13, 5, 0, 0, 0, 14]),
        "large": bytes([0, 0, 7, 0x1D, 0x2D, 0x3D, 0x4D, 6, 0, 0, 0, 14]),
        "closed": bytes([0, 0, 6, 11, 0, 1, 0, 2, 14]),
        "refused": bytes([7, 8, *MAGIC, 2, 0, 0, 0]),
        "future": bytes([0, 0, 2, 7, 9, 3, 3, 0, 1, 14]),
    },
    "handshake": {
        "token": bytes([3, 1, 0, 1, 0, 1, 9, 2, 2, 7, 0, 0, 0, 0]),
        "short": bytes([0, 0, 0, 0, 9, 0, 1]),
    },
    "tuner_table": {
        "one": (
            b"busbw-tuner-table 1\n"
            b"about x\n"
            b"8 2 all_reduce 1024 4096 Ring LL 4\n"
            b"8 * all_gather 0"
            b" 1048576 NVLS Simple * # y\n"
        )
    },
}


def main() -> None:
    """Write all seeds, in one folder for each target."""
    for target, seeds in SEEDS.items():
        folder = Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
