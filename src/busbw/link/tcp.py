"""A TCP test that needs nothing installed: several streams from one node to another, and round trips of small messages.

Each stream has a blocking thread at each end that moves PIECE bytes per system call. Python's lock is free during the call, so threads
of one process suffice. The receiver counts the bytes between two marks; what is sent before and after does not count.
"""

import contextlib
import os
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass

from busbw.link.listening import Listener, connect
from busbw.stats.summary import nearest_rank

PIECE = 1 << 20
WARM_UP_S = 0.5  # TCP's rate grows during the first round trips
MESSAGE = b"\0" * 64
PINGS, PING_WARM_UP, PING_S = 2000, 100, 1.0  # stops at whichever comes first
BUSY = 0.9  # of the processor time that the threads could use


@dataclass(frozen=True, slots=True)
class Load:
    """Processor cores that this process used, and whether its threads had no processor time left."""

    cores: float
    bound: bool


@dataclass(frozen=True, slots=True)
class Received:
    """`bytes` of data in `seconds`."""

    bytes: int
    seconds: float
    load: Load


class _Meter:
    """The processor time of this process between two moments."""

    def __init__(self, threads: int) -> None:
        self._most = min(threads, len(os.sched_getaffinity(0)))
        self._start_s, self._used_s = time.monotonic(), time.process_time()

    def load(self) -> Load:
        cores = (time.process_time() - self._used_s) / max(time.monotonic() - self._start_s, 1e-9)
        return Load(round(cores, 3), cores >= BUSY * self._most)


def receive(listener: Listener, streams: int, seconds: float, limit_s: float) -> Received:
    """Take `streams` connections, and count what arrives during `seconds` after WARM_UP_S.

    TimeoutError if the connections do not come within `limit_s`, ConnectionError if they end early.
    """
    connections = listener.accept(streams, limit_s)
    counts, ended, stop = [0] * streams, list[int](), threading.Event()

    def take(number: int) -> None:
        buffer = memoryview(bytearray(PIECE))
        with contextlib.suppress(OSError):
            while not stop.is_set() and (got := connections[number].recv_into(buffer)):
                counts[number] += got
        ended.append(number)

    for connection in connections:
        _blocking(connection, socket.SO_RCVTIMEO, limit_s)
    threads = [threading.Thread(target=take, args=(number,), daemon=True) for number in range(streams)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(WARM_UP_S)
        meter, start_s, before = _Meter(streams), time.monotonic(), sum(counts)
        time.sleep(seconds)
        after, end_s, load, early = sum(counts), time.monotonic(), meter.load(), len(ended)
    finally:
        stop.set()
        for connection in connections:
            _end(connection)
        for thread in threads:
            thread.join(limit_s)
    if early:
        raise ConnectionError(f"{early} of {streams} streams ended during the test")
    return Received(after - before, end_s - start_s, load)


def send(source: tuple[str, str], address: str, port: int, token: str, streams: int, limit_s: float, most_s: float) -> Load:
    """Send through `streams` connections until the receiver closes them, at most `most_s` seconds.

    OSError if a connection fails or stands still for `limit_s`.
    """
    connections: list[socket.socket] = []
    try:
        connections.extend(connect(source, address, port, token, limit_s) for _ in range(streams))
        for connection in connections:
            _blocking(connection, socket.SO_SNDTIMEO, limit_s)
        piece, deadline = memoryview(bytes(PIECE)), time.monotonic() + most_s

        def give(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):  # the receiver closes the connection when it is done
                while time.monotonic() < deadline:
                    connection.send(piece)

        meter = _Meter(streams)
        threads = [threading.Thread(target=give, args=(connection,), daemon=True) for connection in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()) + limit_s)
        return meter.load()
    finally:
        for connection in connections:
            _end(connection)


def answer(listener: Listener, limit_s: float) -> None:
    """Take one connection and send back each message until it ends."""
    connection = listener.accept(1, limit_s)[0]
    with connection:
        _prompt(connection, limit_s)
        while data := connection.recv(len(MESSAGE)):
            connection.sendall(data)


def ping(source: tuple[str, str], address: str, port: int, token: str, limit_s: float) -> tuple[float, float, int]:
    """Median, 99th percentile and number of round trips of small messages, in seconds. OSError if one takes longer than `limit_s`."""
    with connect(source, address, port, token, limit_s) as connection:
        _prompt(connection, limit_s)
        trips: list[float] = []
        end_s = time.monotonic() + PING_S
        while len(trips) < PINGS + PING_WARM_UP and (len(trips) <= PING_WARM_UP or time.monotonic() < end_s):
            start_s = time.perf_counter()
            connection.sendall(MESSAGE)
            left = len(MESSAGE)
            while left:
                got = len(connection.recv(left))
                if not got:
                    raise ConnectionError("the other end closed the connection")
                left -= got
            trips.append(time.perf_counter() - start_s)
    kept = sorted(trips[PING_WARM_UP:])
    return statistics.median(kept), nearest_rank(kept, 99), len(kept)


def _prompt(connection: socket.socket, limit_s: float) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(limit_s)


def _blocking(connection: socket.socket, option: int, limit_s: float) -> None:
    """Calls that block in the kernel, at most `limit_s`: Python's own timeout would cost a system call for each."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(limit_s), int(limit_s % 1 * 1e6)))


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
