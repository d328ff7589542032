"""TCP connections of this process: what each has sent, and which lose packets."""

import socket
import struct
from collections.abc import Iterator

import pytest

from busbw.host import tcp_connections
from busbw.host.tcp_connections import ConnectionCounts


@pytest.fixture
def connected() -> Iterator[socket.socket]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        other, _ = listener.accept()
        with other:
            client.sendall(b"x")
            assert other.recv(1) == b"x"
            yield client


def test_the_segments_of_each_connection_are_counted(connected: socket.socket) -> None:
    counts = tcp_connections.read()[(*connected.getsockname(), *connected.getpeername())]
    assert counts == ConnectionCounts(timeouts=0, resent=0, sent=1)
    assert all(ends[:2] != connected.getsockname() for ends in tcp_connections.lossy({}))


def test_bytes_that_nobody_has_read_are_received() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        other, _ = listener.accept()
        with other:
            client.sendall(bytes(5000))
            other.recv(5000, socket.MSG_PEEK | socket.MSG_WAITALL)
            assert (tcp_connections.received(client), tcp_connections.received(other)) == (0, 5000)


def test_only_connections_of_tcp_are_counted(connected: socket.socket) -> None:
    before = set(tcp_connections.read())
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.create_server(("127.0.0.1", 0)),
    ):
        datagrams.connect(connected.getpeername())
        first, right = socket.socketpair()
        with first, right:
            assert set(tcp_connections.read()) == before


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (232, (7, 11, 13)),
        (160, (7, 11, 13)),
        (159, (7, 11, 0)),
        (104, (7, 11, 0)),
        (103, (7, 0, 0)),
    ],
)
def test_counts_are_read_at_their_places_also_from_older_kernels(
    length: int, expected: tuple[int, int, int]
) -> None:
    info = bytearray(b"\xff" * 232)
    info[2] = 7
    struct.pack_into("=I", info, 100, 11)
    struct.pack_into("=I", info, 156, 13)
    assert tcp_connections.counts(bytes(info[:length])) == ConnectionCounts(*expected)


@pytest.mark.parametrize(
    ("before", "later_counts", "lossy"),
    [
        (None, ConnectionCounts(0, 0, 1000), None),
        (None, ConnectionCounts(0, 1, 2), None),  # one segment proves nothing
        (None, ConnectionCounts(0, 2, 3), (2, 3)),
        (None, ConnectionCounts(0, 20, 1000), None),
        (None, ConnectionCounts(0, 21, 1000), (21, 1000)),
        # what was sent before does not hide what is lost now
        (ConnectionCounts(0, 0, 990), ConnectionCounts(0, 5, 1000), (5, 10)),
        (ConnectionCounts(0, 500, 990), ConnectionCounts(0, 501, 1000), None),
        (ConnectionCounts(0, 0, 990), ConnectionCounts(1, 1, 991), (1, 1)),
    ],
)
def test_a_connection_is_lossy_by_its_segments_since(
    before: ConnectionCounts | None,
    later_counts: ConnectionCounts,
    lossy: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = ("127.0.0.1", 1, "10.0.0.2", 2)
    monkeypatch.setattr(tcp_connections, "read", lambda: {ends: later_counts})
    connections = tcp_connections.lossy({ends: before} if before else {})
    assert [(connection.resent, connection.sent) for connection in connections] == (
        [lossy] if lossy else []
    )
    assert [
        (connection.local, connection.peer, connection.interface, connection.timeouts)
        for connection in connections
    ] == [("127.0.0.1", "10.0.0.2", "lo", later_counts.timeouts)] * len(connections)


@pytest.mark.parametrize(
    ("queued", "timeouts", "vanishing"), [(9000, 2, 8948), (8947, 2, 0), (9000, 1, 0)]
)
def test_full_segments_without_an_answer_vanish_if_the_peer_answers_small_packets(
    queued: int, timeouts: int, vanishing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = bytearray(232)
    info[2] = timeouts
    struct.pack_into("=I", info, 16, 8948)
    counts = tcp_connections.counts(bytes(info), queued)
    ends = ("127.0.0.1", 1, "127.0.0.1", 2)  # which refuses connections
    monkeypatch.setattr(tcp_connections, "read", lambda: {ends: counts})
    assert [connection.vanishing for connection in tcp_connections.lossy({})] == [vanishing]


@pytest.mark.parametrize(("length", "expected"), [(136, 7), (135, 0), (232, 7)])
def test_received_bytes_are_read_where_the_kernel_counts_them(length: int, expected: int) -> None:
    info = (bytes(128) + struct.pack("=Q", 7)).ljust(232, b"\0")[:length]

    class Older(socket.socket):
        """A socket of a kernel with a shorter struct tcp_info."""

        def getsockopt(self, *_: object) -> bytes:  # type: ignore[override]
            return info

    with Older() as connection:
        assert tcp_connections.received(connection) == expected


@pytest.mark.parametrize(("length", "expected"), [(192, 1.5), (191, None), (232, 1.5)])
def test_the_wait_for_the_network_is_read_where_the_kernel_counts_them(
    length: int, expected: float | None
) -> None:
    info = (bytes(168) + struct.pack("=QQQ", 2_000_000, 400_000, 100_000)).ljust(232, b"\0")
    assert tcp_connections.waited_for_network_s(info[:length]) == expected
