"""The web server answers real requests, and only those that it is for."""

import contextlib
import gzip
import http.client
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from busbw.core.errors import UsageError
from busbw.watch import exporter
from busbw.watch.exporter import Exporter, address

HANGS_S = 100.0  # only what hangs takes longer, on a busy machine too
PAGE = b"# HELP up_total x\n# TYPE up_total counter\nup_total 1\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    """The server's limits are those of a test that hangs."""
    monkeypatch.setattr(exporter, "REQUEST_S", HANGS_S)
    monkeypatch.setattr(exporter._HttpHandler, "timeout", HANGS_S)


@pytest.fixture
def serve():
    running = []

    def start(**fields) -> Exporter:
        running.append(
            Exporter("127.0.0.1", 0, lambda: PAGE, "text/plain; version=0.0.4", **fields)
        )
        return running[-1]

    yield start
    for server in running:
        server.close()


def get(
    server: Exporter, path: str, method: str = "GET", **headers: str | bytes
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=HANGS_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_metrics_and_a_page_that_leads_there(serve):
    server = serve()
    with urllib.request.urlopen(server.url, timeout=HANGS_S) as answer:
        assert (answer.read(), answer.headers["Content-Type"]) == (
            PAGE,
            "text/plain; version=0.0.4",
        )
    assert get(server, "/")[0] == 200 and b'href="/metrics"' in get(server, "/")[1]


def test_head_has_the_headers_of_get_and_no_body(serve):
    server = serve()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=HANGS_S)
    with contextlib.closing(connection):
        connection.request("HEAD", "/metrics")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Length"], answer.read()) == (
            200,
            str(len(PAGE)),
            b"",
        )
    assert get(serve(token="s3cret"), "/metrics", "HEAD")[0] == 401


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0, br", False),
        ("", False),
    ],
)
def test_metrics_are_gzipped_for_who_accepts_it(serve, accepted, packed):
    _, body = get(serve(), "/metrics", **{"Accept-Encoding": accepted})
    assert (gzip.decompress(body) if packed else body) == PAGE


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/etc/passwd", "GET", 404), ("/metrics/", "GET", 404), ("/metrics", "POST", 501)],
)
def test_nothing_else_is_answered(serve, path, method, status):
    assert get(serve(), path, method)[0] == status


def test_a_token_is_needed_where_one_is_set(serve):
    server = serve(token="s3cret")
    assert get(server, "/metrics")[0] == 401
    assert get(server, "/metrics", Authorization="Bearer wrong")[0] == 401
    assert get(server, "/metrics", Authorization="Bearer s3cret") == (200, PAGE)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(server.url, timeout=HANGS_S)


def test_a_token_may_have_any_letters(serve):
    server = serve(token="schlüssel")
    assert get(server, "/metrics", Authorization="Bearer schlüssel".encode()) == (200, PAGE)
    assert get(server, "/metrics", Authorization="Bearer schlussel")[0] == 401


def test_slow_clients_are_cut_off_and_do_not_stop_others(serve, monkeypatch):
    server = serve()
    with socket.create_connection(server.server_address[:2], timeout=HANGS_S) as slow:
        slow.sendall(b"GET /metrics HT")
        assert get(server, "/metrics")[0] == 200, "others are answered meanwhile"
        slow.sendall(b"T")  # a byte now and then does not help
        monkeypatch.setattr(exporter, "REQUEST_S", 0.0)
        with contextlib.suppress(ConnectionError):
            assert slow.recv(100) == b""


@pytest.mark.parametrize("beginning", [b"", b"GET /metrics HTTP/1.1\r\nHost:"])
def test_strangers_who_ask_for_nothing_keep_no_scraper_out(serve, beginning):
    server = serve(token="s3cret")
    strangers = [
        socket.create_connection(server.server_address[:2], timeout=HANGS_S)
        for _ in range(2 * exporter.MAX_CONNECTIONS)
    ]
    for number in range(20):
        strangers[number].close()
        # they come back
        strangers.append(socket.create_connection(server.server_address[:2], timeout=HANGS_S))
        with contextlib.suppress(OSError):  # it was ended
            strangers[-2].sendall(beginning)
        assert get(server, "/metrics", Authorization="Bearer s3cret") == (200, PAGE)
        assert len(server._open) <= exporter.MAX_CONNECTIONS
    for stranger in strangers:
        stranger.close()


def test_connections_that_are_answered_are_not_ended_for_others_and_limited(monkeypatch):
    monkeypatch.setattr(exporter, "MAX_CONNECTIONS", 2)
    go, answered = threading.Event(), threading.Semaphore(0)

    def page() -> bytes:
        answered.release()
        go.wait(HANGS_S)
        return PAGE

    server = Exporter("127.0.0.1", 0, page, "text/plain")
    try:
        with ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(get, server, "/metrics") for _ in range(2)]
            assert all(answered.acquire(timeout=HANGS_S) for _ in answers)
            with pytest.raises((OSError, http.client.HTTPException)):
                get(server, "/")
            go.set()
            assert [answer.result() for answer in answers] == [(200, PAGE)] * 2
    finally:
        go.set()
        server.close()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:28729", "127.0.0.1", 28729),
        (":28729", "127.0.0.1", 28729),
        ("28729", "127.0.0.1", 28729),
        ("[::1]:80", "::1", 80),
        ("localhost:1", "localhost", 1),
    ],
)
def test_addresses_of_loopback_need_no_token(text, host, port):
    assert address(text, "") == (host, port)


@pytest.mark.parametrize("text", ["0.0.0.0:28729", "10.1.2.3:28729", "[::]:28729", "gpu-1:28729"])
def test_other_addresses_need_a_token(text):
    with pytest.raises(UsageError, match="other hosts could read the counters"):
        address(text, "")
    assert address(text, "s3cret")[1] == 28729


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:\u00b2"]
)
def test_malformed_addresses_are_refused(text):
    with pytest.raises(UsageError, match="is not a port"):
        address(text, "")


def test_an_address_in_use_is_an_error_with_a_hint(serve):
    port = serve().server_address[1]
    with pytest.raises(
        UsageError, match=f"--listen 127.0.0.1:{port}: Address already in use"
    ) as raised:
        Exporter("127.0.0.1", port, lambda: PAGE, "text/plain")
    assert "choose another port" in raised.value.hint
