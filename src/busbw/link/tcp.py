"""A TCP test that needs nothing installed: several streams from one node to another, and round
trips of small messages.

Each stream has a blocking thread at each end that moves PIECE bytes per system call. Python's lock
is free during the call, so threads of one process suffice. The receiver's kernel counts the bytes
between two points in time: its threads may be late on a busy host. The kernel drops the received
data (MSG_TRUNC, tcp(7)): copying it would take more CPU time than all else, and says nothing about
the link.
"""

import contextlib
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from busbw.host import process, tcp_connections
from busbw.link.listening import Listener, connect
from busbw.stats.intervals import nearest_rank

PIECE = 1 << 20
PROMPT_S, MAX_TRIES = 1e-3, 20  # the count and its time belong together
WARM_UP_S = 0.5  # TCP's rate grows during the first round trips
MESSAGE = b"\0" * 64
MAX_PINGS, PING_WARM_UP, PING_S = 2000, 100, 1.0  # stops at whichever comes first
BUSY_SHARE = 0.9  # of the CPU time that the threads could use
# Of the time: threads that waited for a CPU so long, and data that did not wait for the network so
# long, were late.
LATE_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class CoreLoad:
    """The CPU cores that the threads of one end used, and whether they could have used no more.

    `network_share`, of a sender, is the share of the time in which its data waited for the network
    alone, in the mean of its streams; None if the kernel does not count it.
    """

    cores: float
    bound: bool
    network_share: float | None = None


@dataclass(frozen=True, slots=True)
class ReceivedData:
    """`bytes` of data in `seconds`."""

    bytes: int
    seconds: float
    load: CoreLoad


class _Meter:
    """The CPU time of one end's threads. Each thread calls `ends` when it ends."""

    def __init__(self, threads: int) -> None:
        self._usable_cores = min(threads, len(os.sched_getaffinity(0)))
        self._start_s = time.monotonic()
        self._times: list[tuple[float, float]] = []

    def ends(self) -> None:
        """Keep the times of the calling thread."""
        self._times.append(
            process.thread_times(threading.get_native_id()) or (time.thread_time(), 0.0)
        )

    def load(self, connections: Sequence[socket.socket] = ()) -> CoreLoad:
        """The load so far, of a sender with its `connections`.

        Time spent waiting for a CPU counts too, since other work on the host is a limit as well.
        """
        seconds = max(time.monotonic() - self._start_s, 1e-9)
        running = sum(running for running, _ in self._times)
        waiting = sum(waiting for _, waiting in self._times)
        bound = (running + waiting) / seconds >= BUSY_SHARE * self._usable_cores
        infos = map(tcp_connections.info_of, connections)
        times_s = [tcp_connections.waited_for_network_s(info) for info in infos]
        known_s = [one for one in times_s if one is not None]
        if not known_s:
            return CoreLoad(round(running / seconds, 3), bound)
        share = min(1.0, statistics.mean(known_s) / seconds)
        late = min(1 - share, waiting / seconds / len(known_s)) > LATE_SHARE
        return CoreLoad(round(running / seconds, 3), bound or late, round(share, 3))


def receive(listener: Listener, streams: int, seconds: float, limit_s: float) -> ReceivedData:
    """Take `streams` connections, and count what arrives during `seconds` after WARM_UP_S.

    TimeoutError if the connections do not arrive within `limit_s`, ConnectionError if they end
    early or carry nothing.
    """
    connections = listener.accept(streams, limit_s)
    counts = [0] * streams
    ended: list[int] = []
    stop = threading.Event()
    meter = _Meter(streams)
    buffer = bytearray(PIECE)  # the kernel writes nothing into it

    def receive_stream(number: int) -> None:
        with contextlib.suppress(OSError):
            while not stop.is_set():
                size = connections[number].recv_into(buffer, PIECE, socket.MSG_TRUNC)
                if not size:
                    break
                counts[number] += size
        ended.append(number)
        meter.ends()

    for connection in connections:
        _block_in_kernel(connection, socket.SO_RCVTIMEO, limit_s)
    threads = [
        threading.Thread(target=receive_stream, args=(number,), daemon=True)
        for number in range(streams)
    ]
    for thread in threads:
        thread.start()
    try:
        time.sleep(WARM_UP_S)
        before, start_s = _arrived(connections, counts)
        time.sleep(seconds)
        after, end_s = _arrived(connections, counts)
        early = len(ended)
    finally:
        stop.set()
        _finish(connections, threads, limit_s)
    if early:
        raise ConnectionError(f"{early} of {streams} streams ended during the test")
    if after == before:
        raise ConnectionError(
            f"connected, but no data arrived for {seconds:g} s: does the path drop large packets?"
        )
    return ReceivedData(after - before, end_s - start_s, meter.load())


def _arrived(connections: Sequence[socket.socket], counts: Sequence[int]) -> tuple[int, float]:
    """The bytes that have arrived over all connections, and the time of that count in seconds.

    `counts` has the bytes that each thread has read, for kernels that do not count them. Count and
    time are taken again if this thread was interrupted between the two.
    """
    for _ in range(MAX_TRIES):
        start_s = time.monotonic()
        total = sum(map(tcp_connections.received, connections)) or sum(counts)
        end_s = time.monotonic()
        if end_s - start_s < PROMPT_S:
            break
    return total, end_s


def send(
    source: tuple[str, str],
    address: str,
    port: int,
    token: str,
    streams: int,
    limit_s: float,
    duration_s: float,
) -> CoreLoad:
    """Send through `streams` connections until the receiver closes them, for at most `duration_s`.

    OSError if a connection cannot be made.
    """
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []
    try:
        connections.extend(connect(source, address, port, token, limit_s) for _ in range(streams))
        for connection in connections:
            _block_in_kernel(connection, socket.SO_SNDTIMEO, limit_s)
        piece = bytes(PIECE)
        deadline = time.monotonic() + duration_s
        meter = _Meter(streams)

        def send_stream(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):  # the receiver closes the connection when it is done
                while time.monotonic() < deadline:
                    connection.send(piece)
            meter.ends()

        threads += [
            threading.Thread(target=send_stream, args=(connection,), daemon=True)
            for connection in connections
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline + limit_s - time.monotonic()))
        return meter.load(connections)
    finally:
        _finish(connections, threads, limit_s)


def _finish(
    connections: list[socket.socket], threads: list[threading.Thread], limit_s: float
) -> None:
    """Reset the connections, and wait for their threads, `limit_s` for all.

    A reset also ends the other end's call, if data that fills its buffer never arrives.
    """
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for connection in connections:
        connection.close()


def answer(listener: Listener, limit_s: float) -> None:
    """Accept one connection and send back each message until it ends."""
    connection = listener.accept(1, limit_s)[0]
    with connection:
        _send_at_once(connection, limit_s)
        while data := connection.recv(len(MESSAGE)):
            connection.sendall(data)


def ping(
    source: tuple[str, str], address: str, port: int, token: str, limit_s: float
) -> tuple[float, float, int]:
    """Median, 99th percentile and number of round trips of small messages, in seconds.

    OSError if one takes longer than `limit_s`.
    """
    with connect(source, address, port, token, limit_s) as connection:
        _send_at_once(connection, limit_s)
        trips: list[float] = []
        end_s = time.monotonic() + PING_S
        while len(trips) < MAX_PINGS + PING_WARM_UP:
            if len(trips) > PING_WARM_UP and time.monotonic() >= end_s:
                break
            trips.append(_time_round_trip(connection))
    kept = sorted(trips[PING_WARM_UP:])
    return statistics.median(kept), nearest_rank(kept, 99), len(kept)


def _time_round_trip(connection: socket.socket) -> float:
    """The seconds from a message to its complete echo."""
    start_s = time.perf_counter()
    connection.sendall(MESSAGE)
    missing = len(MESSAGE)
    while missing:
        received = len(connection.recv(missing))
        if not received:
            raise ConnectionError("the other end closed the connection")
        missing -= received
    return time.perf_counter() - start_s


def _send_at_once(connection: socket.socket, limit_s: float) -> None:
    """Switch off Nagle's delay, and set the timeout of each call."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(limit_s)


def _block_in_kernel(connection: socket.socket, option: int, limit_s: float) -> None:
    """Let calls block in the kernel for at most `limit_s`.

    Python's own timeout would cost one more system call for each.
    """
    connection.settimeout(None)
    connection.setsockopt(
        socket.SOL_SOCKET, option, struct.pack("ll", int(limit_s), int(limit_s % 1 * 1e6))
    )
