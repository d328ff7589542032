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
from busbw.host.nvml_samples import Vitals
from busbw.host.source import Live
from busbw.host.tcp_connections import endpoints
from busbw.link import pair as m
from busbw.link import perftest, tcp
from busbw.link.listening import Listener

MARGIN_S = 10.0  # after the measured time, until a sender exits


class Service:
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

    def handle(self, request: bytes) -> msgspec.Struct:
        """The answer to the JSON of one request. Raises what prevents it."""
        asked = msgspec.json.decode(request, type=m.Request)
        return self._handlers[type(asked)](asked)

    def close(self) -> None:
        """Kill the servers that still run, and close the counters."""
        perftest.end_all()
        self._vitals.close()

    def _describe(self, asked: m.Describe) -> m.Description:
        found = perftest.detect() if asked.perftest else None
        return m.Description(platform.node(), __version__, endpoints(Live()), found)

    def _listen(self, asked: m.Listen) -> m.Listening:
        listener, ticket = Listener(asked.address, asked.token), next(self._tickets)
        self._listeners[ticket] = listener
        return m.Listening(ticket, listener.port)

    def _taken(self, work: Callable[[], m.Taken]) -> m.Taken:
        """Do one end of a transfer, with the counters before and after."""
        with self._lock:
            before = self._vitals.read()
        taken = work()
        with self._lock:
            return msgspec.structs.replace(taken, moved=change(before, self._vitals.read()).moved)

    def _receive(self, asked: m.Receive) -> m.Taken:
        listener = self._listeners.pop(asked.ticket)

        def work() -> m.Taken:
            got = tcp.receive(listener, asked.streams, asked.seconds, asked.limit_s)
            return m.Taken(got.load.cores, got.load.bound, got.bytes / got.seconds)

        return self._taken(work)

    def _send(self, asked: m.Send) -> m.Taken:
        most_s = asked.seconds + tcp.WARM_UP_S + MARGIN_S

        def work() -> m.Taken:
            load = tcp.send(
                asked.source,
                asked.address,
                asked.port,
                asked.token,
                asked.streams,
                asked.limit_s,
                most_s,
            )
            return m.Taken(load.cores, load.bound)

        return self._taken(work)

    def _answer(self, asked: m.Answer) -> m.Done:
        tcp.answer(self._listeners.pop(asked.ticket), asked.limit_s)
        return m.Done()

    def _ping(self, asked: m.Ping) -> m.Trips:
        return m.Trips(
            *tcp.ping(asked.source, asked.address, asked.port, asked.token, asked.limit_s)
        )

    def _serve(self, asked: m.Serve) -> m.Listening:
        server, port = perftest.serve(asked.test, asked.limit_s)
        ticket = next(self._tickets)
        self._servers[ticket] = server
        return m.Listening(ticket, port)

    def _finish(self, asked: m.Finish) -> m.Taken:
        server = self._servers.pop(asked.ticket)

        def work() -> m.Taken:
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(asked.limit_s)
            server.end()
            return m.Taken()

        return self._taken(work)

    def _client(self, asked: m.Client) -> m.Taken | m.Trips:
        def text() -> str:
            return perftest.client(asked.test, asked.address, asked.port, asked.limit_s)

        def work() -> m.Taken:
            found = perftest.bandwidth(said := text(), asked.test.size)
            if found is None:
                raise perftest.unreadable(said)
            return m.Taken(rate=found.rate, mtu=found.mtu)

        if asked.test.program == perftest.BANDWIDTH:
            return self._taken(work)
        trips = perftest.latency(said := text())
        if trips is None:
            raise perftest.unreadable(said)
        return m.Trips(trips.typical, trips.p99, trips.count)
