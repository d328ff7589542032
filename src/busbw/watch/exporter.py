"""A web server for Prometheus: GET /metrics returns the last reading. A request reads no counter.

`Exporter` is the server. Beyond loopback a scraper has to know a token. Connections are few, and
each has a time limit. When there are too many, the one that has been idle for longest is closed:
clients that connect and send nothing cannot lock out Prometheus.
"""

import contextlib
import gzip
import hmac
import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from busbw.core.errors import UsageError
from busbw.core.link_samples import METRICS_PORT
from busbw.host.tcp_connections import has_data

LOOPBACK = "127.0.0.1"
DEFAULT_ADDRESS = f"{LOOPBACK}:{METRICS_PORT}"
MAX_CONNECTIONS = 64
REQUEST_S = 5.0  # for one connection, from its first byte to its last
INDEX = (
    b"<html><head><title>busbw watch</title></head><body><a"
    b' href="/metrics">metrics</a></body></html>\n'
)


def address(text: str, token: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:28729`, `:28729`, `28729` or `[::1]:28729`.

    UsageError if it is no address, or if other hosts could connect without a token.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise UsageError(
            f"--listen {text}: '{port}' is not a port",
            f"give HOST:PORT, like --listen {DEFAULT_ADDRESS}",
        )
    if not token and not is_loopback(host):
        raise UsageError(
            f"--listen {text}: other hosts could read the counters",
            "add --token-file FILE: scrapers must send its content as a bearer token",
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this host reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Exporter(ThreadingMixIn, HTTPServer):
    """Serves `page()` in threads of its own until `close`.

    UsageError if the address cannot be used.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # connections that wait to be accepted

    def __init__(
        self, host: str, port: int, page: Callable[[], bytes], content_type: str, token: str = ""
    ) -> None:
        self.page, self.content_type, self._token = page, content_type, token
        self._open: dict[socket.socket, float] = {}  # oldest first, with the time of its start
        self._asking: set[socket.socket] = set()  # their first line has come
        self._answering: set[socket.socket] = set()  # their whole request has come
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _HttpHandler)
        except OSError as error:
            raise UsageError(
                f"--listen {host}:{port}: {error.strerror or error}",
                "choose another port, or an address of this host",
            ) from error
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.5}, name="exporter", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host, port = self.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{name}:{port}/metrics"

    def allows(self, header: str | None) -> bool:
        """Whether the header Authorization has the token, if one is needed."""
        if not self._token:
            return True
        # http.server decodes headers as Latin-1, whatever the client encoded.
        sent = (header or "").encode("latin-1", "replace")
        return hmac.compare_digest(sent, f"Bearer {self._token}".encode())

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether to accept one more connection.

        If there are MAX_CONNECTIONS, the one that is idle for longest is ended to make room. The
        new one is refused only if all are being answered.
        """
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                idle = self._longest_idle()
                if idle is None:
                    return False
                self._open.pop(idle)  # its thread still closes it
                _end(idle)
            self._open[request] = time.monotonic()
            return True

    def _longest_idle(self) -> socket.socket | None:
        """The oldest connection that has sent nothing, else the oldest without a whole request."""
        waiting = [request for request in self._open if request not in self._answering]
        silent = (
            request for request in waiting if request not in self._asking and not has_data(request)
        )
        return next(silent, waiting[0] if waiting else None)

    def asking(self, request: socket.socket, *, whole: bool) -> None:
        """Note that the first line of a request, or a `whole` one, has come on this connection."""
        with self._lock:
            (self._answering if whole else self._asking).add(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection and close it."""
        with self._lock:
            self._open.pop(request, None)
            self._asking.discard(request)
            self._answering.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that exceed their time limit; called twice a second."""
        with self._lock:
            now_s = time.monotonic()
            late = [
                request for request, start_s in self._open.items() if now_s - start_s > REQUEST_S
            ]
        for request in late:
            _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is not an error of the watch."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(REQUEST_S)


def _accepts_gzip(header: str) -> bool:
    """Whether Accept-Encoding (RFC 9110, 12.5.3) names gzip with a weight above 0."""
    for part in header.split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _end(request: socket.socket) -> None:
    """End a connection; its handler sees the end of its input, and closes it."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _HttpHandler(BaseHTTPRequestHandler):
    server: Exporter
    server_version, sys_version = "busbw", ""
    timeout = REQUEST_S

    def parse_request(self) -> bool:
        """Read the headers, after the first line."""
        self.server.asking(self.request, whole=False)
        return super().parse_request()

    def do_HEAD(self) -> None:
        self.do_GET()  # _answer leaves out the body

    def do_GET(self) -> None:
        self.server.asking(self.request, whole=True)
        if not self.server.allows(self.headers.get("Authorization")):
            self._answer(
                401,
                b"the token is missing or wrong\n",
                "text/plain",
                {"WWW-Authenticate": "Bearer"},
            )
        elif self.path == "/metrics":
            self._answer_packed(self.server.page())
        elif self.path == "/":
            self._answer(200, INDEX, "text/html")
        else:
            self._answer(404, b"only / and /metrics are here\n", "text/plain")

    def _answer_packed(self, page: bytes) -> None:
        """The metrics, gzipped to a tenth for a client that accepts it, as Prometheus does."""
        headers = {"Vary": "Accept-Encoding"}
        if _accepts_gzip(self.headers.get("Accept-Encoding", "")):
            page = gzip.compress(page, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        self._answer(200, page, self.server.content_type, headers)

    def _answer(
        self, status: int, body: bytes, content_type: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
