"""The tests of one pair of hosts on one rail, by requests to both nodes. Each wait has a limit."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from busbw.core.errors import NoMeasurement
from busbw.host.endpoints import Endpoint
from busbw.launch.node import Node
from busbw.link import messages as m
from busbw.link import perftest, tcp
from busbw.link.authentication import token
from busbw.link.types import TCP, Flow, Latency, LinkSpec


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a pair: the host's index, its node, and its port on the rail."""

    host: int
    node: Node
    port: Endpoint


@dataclass(frozen=True, slots=True)
class PairTest:
    """Measures pairs as `spec` says; `rail` is an index."""

    spec: LinkSpec
    rail: int

    def flows(self, a: Place, b: Place) -> list[Flow]:
        """One direction after the other, then both at once if requested.

        A failed test has its error in the flow.
        """
        directions = [(a, b), (b, a)]
        found = [flow for one in directions for flow in self._at_once([one])]
        return found + (self._at_once(directions) if self.spec.both else [])

    def latency(self, a: Place, b: Place) -> Latency:
        """Times of small messages between two hosts."""
        found = Latency(rail=self.rail, a=a.host, b=b.host)
        try:
            trips = self._ping(a, b) if self.spec.method == TCP else self._perftest_latency(a, b)
        except NoMeasurement as error:
            found.error = error.message
        else:
            found.median_s, found.p99_s, found.count = trips.median_s, trips.p99_s, trips.count
        return found

    def _at_once(self, directions: list[tuple[Place, Place]]) -> list[Flow]:
        begun: list[tuple[Flow, Callable[[], None]]] = []
        for sender, receiver in directions:
            flow = Flow(
                rail=self.rail,
                sender=sender.host,
                receiver=receiver.host,
                together=len(directions) > 1,
            )
            begin = self._tcp if self.spec.method == TCP else self._perftest
            try:
                begun.append((flow, begin(flow, sender, receiver)))
            except NoMeasurement as error:
                flow.error = error.message
                begun.append((flow, lambda: None))
        for flow, end in begun:
            try:
                end()
            except NoMeasurement as error:
                flow.rate, flow.error = None, error.message
        return [flow for flow, _ in begun]

    def _tcp(self, flow: Flow, sender: Place, receiver: Place) -> Callable[[], None]:
        spec, key, limit_s = self.spec, token(), self.spec.limit_s
        port = receiver.node.ask(m.Listen(receiver.port.address, key), m.Listening, limit_s)
        receiving = receiver.node.begin(m.Receive(port.ticket, spec.streams, spec.seconds, limit_s))
        sending = sender.node.begin(
            m.Send(
                _source(sender),
                receiver.port.address,
                port.port,
                key,
                spec.streams,
                spec.seconds,
                limit_s,
            )
        )
        return lambda: self._collect(
            flow, (sender, sending), (receiver, receiving), spec.seconds + tcp.WARM_UP_S
        )

    def _perftest(self, flow: Flow, sender: Place, receiver: Place) -> Callable[[], None]:
        server, client = (
            self._test(perftest.BANDWIDTH, receiver.port),
            self._test(perftest.BANDWIDTH, sender.port),
        )
        port, limit_s = (
            receiver.node.ask(
                m.Serve(server, self.spec.limit_s), m.Listening, 2 * self.spec.limit_s
            ),
            self.spec.limit_s,
        )
        measured_s = self.spec.seconds + 2 * perftest.MARGIN_S
        sending = sender.node.begin(
            m.Client(client, receiver.port.address, port.port, measured_s + limit_s)
        )
        receiving = receiver.node.begin(m.Finish(port.ticket, measured_s + limit_s))
        return lambda: self._collect(flow, (sender, sending), (receiver, receiving), measured_s)

    def _collect(
        self,
        flow: Flow,
        sending: tuple[Place, Future[bytes]],
        receiving: tuple[Place, Future[bytes]],
        measured_s: float,
    ) -> None:
        """Fill the flow from both answers.

        The sender's error comes first: a receiver only sees that no one connected.
        """
        most_s = measured_s + 2 * self.spec.limit_s
        sent, got = (
            place.node.result(future, m.Taken, most_s) for place, future in (sending, receiving)
        )
        flow.rate = got.rate if got.rate is not None else sent.rate
        flow.mtu = sent.mtu
        if sent.cores is not None and got.cores is not None:
            flow.cores = sent.cores, got.cores
        flow.processor_bound = sent.bound or got.bound
        names = sending[0].node.host, receiving[0].node.host
        flow.moved = {
            name: moved for name, moved in zip(names, (sent.moved, got.moved), strict=True) if moved
        }

    def _ping(self, a: Place, b: Place) -> m.Trips:
        key, limit_s = token(), self.spec.limit_s
        port = b.node.ask(m.Listen(b.port.address, key), m.Listening, limit_s)
        answering = b.node.begin(m.Answer(port.ticket, limit_s))
        trips = a.node.ask(
            m.Ping(_source(a), b.port.address, port.port, key, limit_s),
            m.Trips,
            tcp.PING_S + 2 * limit_s,
        )
        b.node.result(answering, m.Done, limit_s)
        return trips

    def _perftest_latency(self, a: Place, b: Place) -> m.Trips:
        limit_s = self.spec.limit_s
        port = b.node.ask(
            m.Serve(self._test(perftest.LATENCY, b.port), limit_s), m.Listening, 2 * limit_s
        )
        wait_s = 0.0  # a server without a client would wait forever
        try:
            asked = m.Client(
                self._test(perftest.LATENCY, a.port), b.port.address, port.port, limit_s
            )
            trips = a.node.ask(asked, m.Trips, 2 * limit_s)
            wait_s = limit_s
        finally:
            ending = b.node.begin(m.Finish(port.ticket, wait_s))
        b.node.result(ending, m.Taken, 2 * limit_s)
        return trips

    def _test(self, program: str, port: Endpoint) -> perftest.Test:
        bandwidth, spec = program == perftest.BANDWIDTH, self.spec
        return perftest.Test(
            program=program,
            device=port.device,
            device_port=port.port,
            gid_index=port.gid_index if spec.gid_index is None else spec.gid_index,
            size=spec.size if bandwidth else perftest.LATENCY_BYTES,
            queue_pairs=spec.streams,
            seconds=spec.seconds,
            gpu=spec.gpu if bandwidth else None,
            address=port.address,
        )


def _source(place: Place) -> tuple[str, str]:
    return place.port.name, place.port.address
