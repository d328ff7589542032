"""One host's side of the tests, in a process that the driver starts: `busbw link --node`."""

import itertools
import platform
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from busbw.core.telemetry import change
from busbw.core.version import __version__
from busbw.host.endpoints import endpoints
from busbw.host.host_vitals import Vitals
from busbw.host.source import LiveMachine
from busbw.link import pair as m
from busbw.link import perftest, tcp
from busbw.link.listening import Listener

MARGIN_S = 10.0  # after the measured time, until a sender exits


class LinkService:
    """Answers the driver's requests; several may run at once."""

    def __init__(self) -> None:
        self._vitals = Vitals([])
        self._lock = threading.Lock()
        self._tickets = itertools.count(1)
        self._listeners: dict[int, Listener] = {}
        self._servers: dict[int, perftest.Running] = {}
        self._handlers: dict[type, Callable[..., msgspec.Struct]] = {
            m.Describe: self._describe,
            m.Listen: self._listen,
            m.Receive: self._receive,
            m.Send: self._send,
            m.Answer: self._answer,
            m.Ping: self._ping,
            m.Serve: self._serve,
            m.Finish: self._finish,
            m.Client: self._client,
        }

    def handle(self, message: bytes) -> msgspec.Struct:
        """The answer to one request, given as JSON. An error of the request's handler is raised."""
        request = msgspec.json.decode(message, type=m.Request)
        return self._handlers[type(request)](request)

    def close(self) -> None:
        """Kill the servers that still run, and close the counters."""
        perftest.end_all()
        self._vitals.close()

    def _describe(self, request: m.Describe) -> m.Description:
        program = perftest.detect() if request.perftest else None
        return m.Description(platform.node(), __version__, endpoints(LiveMachine()), program)

    def _listen(self, request: m.Listen) -> m.Listening:
        listener, ticket = Listener(request.address, request.token), next(self._tickets)
        self._listeners[ticket] = listener
        return m.Listening(ticket, listener.port)

    def _with_counters(self, work: Callable[[], m.TransferEnd]) -> m.TransferEnd:
        """Do one end of a transfer; the result has the increases of the counters meanwhile."""
        with self._lock:
            before = self._vitals.read()
        transfer = work()
        with self._lock:
            return msgspec.structs.replace(
                transfer, moved=change(before, self._vitals.read()).moved
            )

    def _receive(self, request: m.Receive) -> m.TransferEnd:
        listener = self._listeners.pop(request.ticket)

        def work() -> m.TransferEnd:
            received = tcp.receive(listener, request.streams, request.seconds, request.limit_s)
            rate = received.bytes / received.seconds
            return m.TransferEnd(received.load.cores, received.load.bound, rate=rate)

        return self._with_counters(work)

    def _send(self, request: m.Send) -> m.TransferEnd:
        duration_s = request.seconds + tcp.WARM_UP_S + MARGIN_S

        def work() -> m.TransferEnd:
            load = tcp.send(
                request.source,
                request.address,
                request.port,
                request.token,
                request.streams,
                request.limit_s,
                duration_s,
            )
            return m.TransferEnd(load.cores, load.bound, load.network_share)

        return self._with_counters(work)

    def _answer(self, request: m.Answer) -> m.Acknowledgment:
        tcp.answer(self._listeners.pop(request.ticket), request.limit_s)
        return m.Acknowledgment()

    def _ping(self, request: m.Ping) -> m.RoundTrips:
        return m.RoundTrips(
            *tcp.ping(request.source, request.address, request.port, request.token, request.limit_s)
        )

    def _serve(self, request: m.Serve) -> m.Listening:
        server, port = perftest.serve(request.test, request.limit_s)
        ticket = next(self._tickets)
        self._servers[ticket] = server
        return m.Listening(ticket, port)

    def _finish(self, request: m.Finish) -> m.TransferEnd:
        server = self._servers.pop(request.ticket)

        def work() -> m.TransferEnd:
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(request.limit_s)
            server.end()
            return m.TransferEnd()

        return self._with_counters(work)

    def _client(self, request: m.Client) -> m.TransferEnd | m.RoundTrips:
        def run() -> str:
            return perftest.client(request.test, request.address, request.port, request.limit_s)

        def measure_bandwidth() -> m.TransferEnd:
            output = run()
            bandwidth = perftest.bandwidth(output, request.test.size)
            if bandwidth is None:
                raise perftest.unreadable(output)
            return m.TransferEnd(rate=bandwidth.rate, mtu=bandwidth.mtu)

        if request.test.program == perftest.BANDWIDTH:
            return self._with_counters(measure_bandwidth)
        output = run()
        trips = perftest.latency(output)
        if trips is None:
            raise perftest.unreadable(output)
        return m.RoundTrips(trips.typical, trips.p99, trips.count)
