"""The connections of processes as sock_diag lists them."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from busbw.host import tcp_sockets
from busbw.host.tcp_sockets import ProcessSockets, TcpSocket, counts, parse

SENT = 5000
INFO = bytearray(232)
INFO[2] = 3  # timeouts
for offset, kind, number in (
    (100, "I", 11),  # resent
    (120, "Q", 5_000_000_000),  # acknowledged
    (136, "I", 13),  # segments out
    (140, "I", 17),  # segments in
    (156, "I", 12),  # segments with data out
    (168, "Q", 900),  # busy
    (176, "Q", 200),  # of it the receiver was full
    (184, "Q", 100),  # of it the buffer was full
    (216, "I", 5),  # that the peer had already
):
    struct.pack_into(f"={kind}", INFO, offset, number)


@contextlib.contextmanager
def connection(family: int, address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection with this address; the first has sent SENT bytes."""
    listener = socket.socket(family)
    with listener, socket.socket(family) as client:
        listener.bind((address, 0))
        listener.listen()
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            client.sendall(bytes(SENT))
            assert len(server.recv(SENT, socket.MSG_WAITALL)) == SENT
            yield client, server


def of_port(port: int) -> TcpSocket | None:
    """The connection of this process with this port."""
    found = ProcessSockets().read([os.getpid()], 0.0)
    own = [one for one in found if struct.unpack_from(">H", one.id) == (port,)]
    return own[0] if own else None


@pytest.mark.parametrize(
    ("family", "address", "said"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_connections_of_a_process_are_read(family: int, address: str, said: str) -> None:
    with connection(family, address) as (client, server):
        sender, receiver = (of_port(one.getsockname()[1]) for one in (client, server))
        assert sender and receiver
        assert (sender.local, sender.peer, sender.queued) == (said, said, 0)
        assert sender.acked - SENT in (0, 1)  # the SYN counts as one
        assert (sender.timeouts, sender.resent, receiver.acked) == (0, 0, 0)
        assert sender.data_sent >= 1 and receiver.heard >= sender.data_sent
        assert sender.id != receiver.id


def test_sockets_of_other_processes_are_left_out() -> None:
    with connection(socket.AF_INET, "127.0.0.1"):
        own = {one.id for one in ProcessSockets().read([os.getpid()], 0.0)}
        others = {one.id for one in ProcessSockets().read([os.getppid(), 1 << 22], 0.0)}
        assert len(own - others) >= 2
        assert ProcessSockets().read([1 << 22], 0.0) == []


def test_new_sockets_are_found_after_some_seconds() -> None:
    sockets = ProcessSockets()
    before = {one.id for one in sockets.read([os.getpid()], 0.0)}
    with connection(socket.AF_INET, "127.0.0.1"):
        assert {one.id for one in sockets.read([os.getpid()], 1.0)} <= before
        later = sockets.read([os.getpid()], tcp_sockets.FILES_EVERY_S)
        assert len({one.id for one in later} - before) == 2


def message(inode: int, info: bytes = bytes(INFO), kind: int = 20) -> bytes:
    """A message about a socket from 10.0.0.1 to 10.0.0.2, in which 96 bytes wait."""
    ends = struct.pack(">HH16s16s", 1000, 2000, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    identity = ends + struct.pack("=III", 0, inode, 0)
    payload = struct.pack("=BBBB48s", socket.AF_INET, 1, 0, 0, identity)
    payload += struct.pack("=IIIII", 0, 0, 96, 0, inode)
    for attribute, value in ((8, b"\0"), (2, info)):
        payload += struct.pack("=HH", 4 + len(value), attribute) + value + bytes(-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(payload), kind, 2, 1, 0) + payload


END = struct.pack("=IHHIII", 20, 3, 2, 1, 0, 0)
WHOLE = TcpSocket(
    id=message(7)[20:68],
    local="10.0.0.1",
    peer="10.0.0.2",
    queued=96,
    timeouts=3,
    acked=5_000_000_000,
    resent=11,
    doubled=5,
    data_sent=12,
    sent=13,
    heard=17,
    waited_us=600,
)


def test_the_connections_of_the_ranks_are_taken_from_a_dump() -> None:
    reply = message(7) + message(8) + message(9, kind=99) + END
    assert parse(reply, {7, 9}) == [WHOLE]


@pytest.mark.parametrize("left", [0, 3, 15, 16, 90, len(message(7)) - 1])
def test_a_message_that_is_cut_off_is_left_out(left: int) -> None:
    reply = message(7) + message(8)[:left]
    assert parse(reply, {7, 8}) == [WHOLE]


def test_a_message_without_an_end_or_tcp_info_says_nothing() -> None:
    assert parse(struct.pack("=IHHII", 0, 20, 2, 1, 0) + message(7), {7}) == []
    assert parse(struct.pack("=IHHII", 40, 20, 2, 1, 0) + bytes(24), {0}) == []
    assert parse(message(7, info=b""), {7}) == []


@pytest.mark.parametrize(
    ("length", "unknown"),
    [
        (232, []),
        (216, ["doubled"]),
        (191, ["doubled", "waited_us"]),
        (159, ["doubled", "waited_us", "data_sent"]),
        (143, ["doubled", "waited_us", "data_sent", "acked", "sent", "heard"]),
        (103, ["doubled", "waited_us", "data_sent", "acked", "sent", "heard", "resent"]),
    ],
)
def test_an_older_kernel_counts_less(length: int, unknown: list[str]) -> None:
    known = WHOLE._asdict()
    expected = {name: known[name] for name in WHOLE._fields[5:] if name not in unknown}
    assert counts(bytes(INFO[:length])) == expected


class Kernel:
    """Answers requests with the given parts, and is silent after the last."""

    def __init__(self, *replies: bytes) -> None:
        self._replies = list(replies)

    def settimeout(self, _limit_s: float) -> None:
        pass

    def close(self) -> None:
        pass

    def send(self, request: bytes) -> None:
        assert request[4] == 20

    def recv(self, _room: int) -> bytes:
        if not self._replies:
            raise TimeoutError
        return self._replies.pop(0)


@pytest.mark.parametrize(
    ("replies", "found"),
    [
        ([message(7), message(8) + END, END], [WHOLE]),
        ([message(7) + END, struct.pack("=IHHIi", 20, 2, 0, 1, -2)], [WHOLE]),  # without IPv6
        ([struct.pack("=IHHIi", 20, 2, 0, 1, -2)], []),
        ([message(7)], [WHOLE]),  # and then nothing
        ([b"", b""], []),
    ],
)
def test_a_dump_that_fails_gives_what_came(
    monkeypatch: pytest.MonkeyPatch, replies: list[bytes], found: list[TcpSocket]
) -> None:
    monkeypatch.setattr(tcp_sockets, "_socket_in", lambda *_: Kernel(*replies))
    monkeypatch.setattr(tcp_sockets, "_inodes", lambda _: frozenset({7}))
    assert ProcessSockets().read([os.getpid()], 0.0) == found


def refused(*_: Any) -> Any:
    raise PermissionError


@pytest.mark.parametrize("owner", ["os.scandir", "busbw.host.tcp_sockets._socket_in"])
def test_without_permission_nothing_is_read(monkeypatch: pytest.MonkeyPatch, owner: str) -> None:
    monkeypatch.setattr(owner, refused)
    assert ProcessSockets().read([os.getpid()], 0.0) == []


def test_a_network_that_may_not_be_entered_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = {os.getppid(): "net:[1]"}
    monkeypatch.setattr(tcp_sockets, "_network", lambda pid: networks.get(pid, "net:[2]"))
    monkeypatch.setattr(tcp_sockets, "_inodes", lambda _: frozenset({7}))
    monkeypatch.setattr(tcp_sockets, "_make_in", lambda *_: None)
    assert ProcessSockets().read([os.getppid()], 0.0) == []
