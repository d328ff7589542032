"""NCCL RAS over a real socket: the client's requests and limits, against a server that answers
as in NCCL's source.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from busbw.host.ras import address, status
from busbw.host.source import Unavailable

Answer = Callable[[bytes], bytes | None]


@contextlib.contextmanager
def server(
    answer: Answer, *, stalls: bool = False
) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """A service of one connection: each line is answered by `answer`; None ends it.

    The report does too, unless it `stalls`.
    """
    received: list[bytes] = []
    listening, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            line, _ = listening.accept()
            with line, line.makefile("rb") as words:
                for word in words:
                    received.append(word)
                    reply = answer(word)
                    if reply is None:
                        return
                    line.sendall(reply)
                    if word == b"STATUS\n":
                        over.wait(60 if stalls else 0)
                        return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[:2], received
    finally:
        over.set()
        listening.close()
        thread.join(5)


def as_nccl(word: bytes) -> bytes:
    if word.startswith(b"CLIENT"):
        return b"SERVER PROTOCOL 2\n"
    return (
        b"OK\n"
        if word.startswith(b"TIMEOUT")
        else b"NCCL version 2.28.9\n" + b"Job summary\n" * 9000
    )


def test_the_report_is_read_to_its_end() -> None:
    with server(as_nccl) as (service_address, received):
        text = status(service_address, 3)
    assert received == [b"CLIENT PROTOCOL 2\n", b"TIMEOUT 2\n", b"STATUS\n"]
    assert text.startswith("NCCL version 2.28.9")
    assert text.count("Job summary") == 9000


def test_another_service_on_the_ras_port_is_reported() -> None:
    with (
        server(lambda _: b"HTTP/1.1 400\n") as (service_address, _),
        pytest.raises(Unavailable, match=r"is not NCCL RAS: it answers 'HTTP/1\.1 400'"),
    ):
        status(service_address, 3)


def test_a_silent_service_is_abandoned_in_time() -> None:
    with (
        server(lambda _: b"") as (service_address, _),
        pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{service_address[1]}: no process answers"),
    ):
        status(service_address, 0.5)


def test_a_report_that_stalls_is_returned_in_part() -> None:
    with server(as_nccl, stalls=True) as (service_address, _):
        assert status(service_address, 0.5).count("Job summary") == 9000


def test_a_stopped_listener_on_the_port_is_skipped() -> None:
    with contextlib.ExitStack() as open_sockets:
        mute = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0), reuse_port=True))
        speaking = open_sockets.enter_context(
            socket.create_server(mute.getsockname(), reuse_port=True)
        )

        def speak() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = speaking.accept()
                    with line, line.makefile("rb") as words:
                        for word in words:
                            line.sendall(as_nccl(word))
                            if word == b"STATUS\n":
                                break

        threading.Thread(target=speak, daemon=True).start()
        # the kernel picks one of the two each time
        statuses = [status(mute.getsockname(), 5) for _ in range(6)]
    assert all(text.startswith("NCCL version 2.28.9") for text in statuses)


def test_no_listener_on_the_ras_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        free_address = free.getsockname()[:2]
    with pytest.raises(Unavailable, match="Connection refused"):
        status(free_address, 1)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("127.0.0.1", 28028)),
        ({"NCCL_RAS_ADDR": "[::1]:9"}, ("::1", 9)),
        ({"NCCL_RAS_ADDR": "h:65535", "NCCL_RAS_ENABLE": "1"}, ("h", 65535)),
    ],
)
def test_the_address_is_nccls_own(environ: dict[str, str], expected: tuple[str, int]) -> None:
    assert address(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [{"NCCL_RAS_ENABLE": "0"}, {"NCCL_RAS_ADDR": "nowhere"}, {"NCCL_RAS_ADDR": "h:65536"}],
)
def test_a_failed_query_returns_the_reason(environ: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="NCCL_RAS"):
        address(environ)
