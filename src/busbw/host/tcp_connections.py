"""TCP connections of this process, and the kernel's TCP_INFO of each socket, which shows
connections that lose packets.
"""

import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from busbw.core.rank_messages import StalledConnection
from busbw.host.addresses import local

MAX_RESENT_SHARE = 0.02  # of the segments sent; a healthy network of a cluster loses none
MIN_RESENT = 2  # resent segments that are no coincidence
_INFO = socket.TCP_INFO if hasattr(socket, "TCP_INFO") else 11
# struct tcp_info of linux/tcp.h: tcpi_retransmits, tcpi_snd_mss, tcpi_total_retrans,
# tcpi_bytes_received (Linux 4.1), tcpi_data_segs_out (4.6); tcpi_busy_time and what of it
# tcpi_rwnd_limited and tcpi_sndbuf_limited were (4.10), in microseconds.
TIMEOUTS_AT, RESENT_AT, DATA_SENT_AT = 2, 100, 156
_SEGMENT, _RECEIVED, _BUSY = 16, 128, 168
MIN_TIMEOUTS = 2  # in a row, after which the peer is asked whether it answers small packets
PROBES, ANSWER_S = 5, 0.5  # where packets of any size are lost, so many are not all answered
_NO_SERVICE = 1  # a port on which nothing listens: the peer refuses the connection
_BYTES = 232


def has_data(connection: socket.socket) -> bool:
    """Whether something waits to be read, or the other end was closed."""
    # recv would wait if the socket has a time limit.
    poll = select.poll()
    try:
        poll.register(connection, select.POLLIN)
    except (OSError, ValueError):  # closed meanwhile
        return False
    return bool(poll.poll(0))


Ends = tuple[str, int, str, int]  # local address and port, the peer's address and port


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """Timeouts in a row of one connection, and how many segments it has resent and sent in all.

    `full` is the size of a segment in bytes, if at least one full segment waits to be acknowledged.
    """

    timeouts: int
    resent: int
    sent: int
    full: int = 0


def read() -> dict[Ends, ConnectionCounts]:
    """All connections of this process."""
    connections = {}
    for entry in Path("/proc/self/fd").iterdir():
        # closed meanwhile, no socket, or no connection
        with contextlib.suppress(OSError, ValueError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                info = info_of(connection)  # OSError if no TCP
                queued = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
                connections[_ends(connection)] = counts(info, queued)
    return connections


def _ends(connection: socket.socket) -> Ends:
    """Both ends of a connection; OSError for a socket without a connection."""
    address, port, *_ = connection.getsockname()
    peer, peer_port, *_ = connection.getpeername()
    return address.removeprefix("::ffff:"), port, peer.removeprefix("::ffff:"), peer_port


def counts(info: bytes, queued: int = 0) -> ConnectionCounts:
    """The counts in a struct tcp_info, 0 for those that the kernel lacks.

    `queued` bytes are not acknowledged.
    """
    resent, sent, segment = (
        struct.unpack_from("=I", info, offset)[0] if len(info) >= offset + 4 else 0
        for offset in (RESENT_AT, DATA_SENT_AT, _SEGMENT)
    )
    return ConnectionCounts(info[TIMEOUTS_AT], resent, sent, segment if queued >= segment else 0)


def answers(peer: str) -> bool:
    """Whether a host answers small packets: it accepts or refuses PROBES connections in time."""
    return all(_answers_once(peer) for _ in range(PROBES))


def _answers_once(peer: str) -> bool:
    try:
        socket.create_connection((peer, _NO_SERVICE), ANSWER_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def info_of(connection: socket.socket) -> bytes:
    """The struct tcp_info of a connection."""
    return connection.getsockopt(socket.IPPROTO_TCP, _INFO, _BYTES)


def received(connection: socket.socket) -> int:
    """Bytes that the connection has received, including those that nobody has read yet.

    0 if the kernel does not count them.
    """
    info = info_of(connection)
    return int(struct.unpack_from("=Q", info, _RECEIVED)[0]) if len(info) >= _RECEIVED + 8 else 0


def waited_for_network_s(info: bytes) -> float | None:
    """Seconds in which data of a connection waited for the network alone: neither for its program,
    nor for room in its buffer or at the receiver. None if the kernel does not count them.
    """
    if len(info) < _BUSY + 24:
        return None
    busy, receiver_full, buffer_full = struct.unpack_from("=QQQ", info, _BUSY)
    return float(max(0, busy - receiver_full - buffer_full)) / 1e6


def lossy(before: Mapping[Ends, ConnectionCounts]) -> list[StalledConnection]:
    """The connections that wait after a timeout, or have lost packets since `before`.

    Packets are lost if more than MAX_RESENT_SHARE of the segments, and at least MIN_RESENT, were
    resent.
    """
    interfaces = {str(address.ip): name for name, address in local().items() if address}
    connections, answered = [], dict[str, bool]()
    for ends, now in read().items():
        then = before.get(ends, ConnectionCounts(0, 0, 0))
        resent, sent = now.resent - then.resent, now.sent - then.sent
        if now.timeouts or (resent >= MIN_RESENT and resent > MAX_RESENT_SHARE * sent):
            address, _, peer, _ = ends
            interface = interfaces.get(address, "")
            waits = now.timeouts >= MIN_TIMEOUTS and now.full > 0
            if waits and peer not in answered:  # after one that is silent, none is asked
                answered[peer] = all(answered.values()) and answers(peer)
            vanishing = now.full if waits and answered[peer] else 0
            connections.append(
                StalledConnection(address, peer, interface, now.timeouts, resent, sent, vanishing)
            )
    return connections
