"""TCP connections of this process that lose packets, from the kernel's TCP_INFO of each of its
sockets.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from busbw.core.rank_messages import Connection
from busbw.host.addresses import local

LOSSY = 0.02  # of the segments sent; a healthy network of a cluster loses none
FEWEST = 2  # resent segments that are no coincidence
_INFO = socket.TCP_INFO if hasattr(socket, "TCP_INFO") else 11
# struct tcp_info of linux/tcp.h: tcpi_retransmits, tcpi_total_retrans, tcpi_bytes_received (Linux
# 4.1), tcpi_data_segs_out (4.6).
_TIMEOUTS, _RESENT, _RECEIVED, _SENT = 2, 100, 128, 156
_BYTES = 232

Ends = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True)
class Counts:
    """Timeouts in a row of one connection, and its segments sent again and sent at all, since it
    was opened.
    """

    timeouts: int
    resent: int
    sent: int


def read() -> dict[Ends, Counts]:
    """All connections of this process."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        # closed meanwhile, no socket, or no connection
        with contextlib.suppress(OSError, ValueError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                # OSError unless it is of TCP
                found[_ends(one)] = counts(one.getsockopt(socket.IPPROTO_TCP, _INFO, _BYTES))
    return found


def _ends(one: socket.socket) -> Ends:
    """OSError for a socket without a connection."""
    (own, own_port, *_), (peer, peer_port, *_) = one.getsockname(), one.getpeername()
    return own.removeprefix("::ffff:"), own_port, peer.removeprefix("::ffff:"), peer_port


def counts(info: bytes) -> Counts:
    """Of a struct tcp_info. 0 for what a kernel does not count."""
    resent, sent = (
        struct.unpack_from("=I", info, at)[0] if len(info) >= at + 4 else 0
        for at in (_RESENT, _SENT)
    )
    return Counts(info[_TIMEOUTS], resent, sent)


def received(one: socket.socket) -> int:
    """Bytes that the connection has received, also those that nobody has read yet; 0 where the
    kernel does not count them.
    """
    info = one.getsockopt(socket.IPPROTO_TCP, _INFO, _BYTES)
    return int(struct.unpack_from("=Q", info, _RECEIVED)[0]) if len(info) >= _RECEIVED + 8 else 0


def lossy(before: Mapping[Ends, Counts]) -> list[Connection]:
    """The connections that wait after a timeout, or have sent more than LOSSY of their segments
    again since they were as `before`.
    """
    named = {str(address.ip): name for name, address in local().items() if address}
    found = []
    for ends, now in read().items():
        then = before.get(ends, Counts(0, 0, 0))
        resent, sent = now.resent - then.resent, now.sent - then.sent
        if now.timeouts or (resent >= FEWEST and resent > LOSSY * sent):
            found.append(
                Connection(ends[0], ends[2], named.get(ends[0], ""), now.timeouts, resent, sent)
            )
    return found
