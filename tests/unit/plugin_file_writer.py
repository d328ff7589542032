"""Writes a file of the profiler plugin as native/crates/events does: into a ring, then behind it."""

import os
import platform
import struct
import time
from pathlib import Path

from busbw.measure.profiler_file import (
    COLL,
    COLL_CALL,
    COMM,
    COMM_END,
    HEADER_BYTES,
    MAGIC,
    P2P,
    TIMED,
    VERSION,
)

RECORD = struct.Struct("<Q8BIi5Q")
BROADCAST, REDUCE_SCATTER, ALL_REDUCE, SEND, RECV = 0, 3, 4, 6, 7
FLOAT, EVENTS = 7, 1
HEAD_AT, TAIL_AT, DROPPED_AT = 24, 32, 40


class PluginFileWriter:
    """A rank of one communicator. `ring` 0 is a file system of a network."""

    def __init__(self, folder: Path, rank: int, ranks: int, *, ring: int = 4096, **facts: object):
        self.rank, self.ranks, self.ring = rank, ranks, ring
        facts = {
            "host": platform.node(),
            "pid": os.getpid(),
            "mode": "timed",
            "RANK": rank,
            "WORLD_SIZE": ranks,
        } | facts
        facts["pid"] = facts["pid"] or os.getpid()
        self.path = folder / f"{facts['host']}-{facts['pid']}-{rank}.capture"
        text = "".join(f"{name}={value}\n" for name, value in facts.items() if value != "").encode()
        words = (MAGIC, VERSION, ring, 0, 0, 0, 0, 0, 0, time.time_ns(), 0, 22809, 5, 0, 0)
        header = struct.pack("<8s14QQ", *words, len(text)) + text
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)
        self.write(0, header.ljust(HEADER_BYTES + ring * RECORD.size, b"\0"))
        self.waiting: list[bytes] = []
        self.head = self.tail = self.calls = self.sequence = 0
        self.clock_ns = 10**9

    def add(self, kind: int, **values: int) -> None:
        """Put a record in."""
        names = ("function", "dtype", "algorithm", "protocol", "channels", "flags")
        code = [values.get(name, 255 if name in names[:4] else 0) for name in names]
        rest = [values.get(name, 0) for name in ("time", "elements", "id", "a", "b")]
        comm, peer = values.get("comm", 0), values.get("peer", 0)
        data = RECORD.pack(self.head + 1, kind, *code, 0, comm, peer, *rest)
        if self.ring:
            self.write(HEADER_BYTES + self.head % self.ring * RECORD.size, data)
        self.head += 1
        self.waiting.append(data)

    def __del__(self) -> None:
        os.close(self.descriptor)

    def write(self, at: int, data: bytes) -> None:
        os.pwrite(self.descriptor, data, at)

    def show(self) -> None:
        """Let the header say what was put in."""
        self.write(HEAD_AT, struct.pack("<2Q", self.head, self.tail))

    def drain(self, *, append: bool = True) -> None:
        """Let all records leave the ring."""
        if append:
            self.write(os.fstat(self.descriptor).st_size, b"".join(self.waiting))
        self.waiting, self.tail = [], self.head
        self.show()

    def comm(self, identity: int = 7, number: int = 0) -> None:
        self.add(COMM, comm=number, id=identity, peer=self.rank, elements=self.ranks, a=1)

    def call(self, us: float | None = 50.0, **values: int) -> None:
        """A collective; timed, if `us` says how long it took on the GPU."""
        self.calls += 1
        values = {"function": ALL_REDUCE, "dtype": FLOAT, "elements": 8} | values
        self.add(COLL_CALL, time=self.clock_ns, id=self.calls, a=5, **values)
        self.add(COLL, time=self.clock_ns, id=self.calls, a=self.calls, b=self.calls, **values)
        if us is not None:
            end_ns = self.clock_ns + int(1000 * us)
            self.add(TIMED, flags=EVENTS, id=self.calls, a=self.clock_ns, b=end_ns)
            self.clock_ns = end_ns

    def pass_on(self, function: int, peer: int) -> None:
        self.add(P2P, function=function, dtype=FLOAT, elements=8, peer=peer)

    def steps(self, steps: int, compute_us: float = 900.0, late_us: float = 0.0) -> None:
        """A step: compute, then two calls, of which the first waits for the late rank. This one, for
        which `late_us` is below 0, is late by that.
        """
        for number in range(steps):
            noise_us = float((number * 7 + self.rank * 5) % 11)
            self.clock_ns += int(1000 * (compute_us + noise_us + max(0.0, -late_us)))
            self.call(60.0 - noise_us + max(0.0, late_us))
            self.call(30.0, function=REDUCE_SCATTER)

    def end(self) -> None:
        self.add(COMM_END)
