"""The tests of one pair of hosts on one rail, by requests to both nodes.

The first part has the driver's requests to a node and the answers; a ticket in them identifies a
listener or server on the node. `PairTest` sends them. Each wait has a limit.
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

import msgspec

from busbw.core.errors import NoMeasurement
from busbw.host.endpoints import Endpoint
from busbw.launch.node import RemoteNode
from busbw.link import perftest, tcp
from busbw.link.listening import token
from busbw.link.perftest import Test
from busbw.link.types import TCP, Latency, LinkSpec, PairFlow, PerftestProgram

Moved = dict[str, dict[str, int]]


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Describe the host. Answer: Description."""

    perftest: bool


class Description(msgspec.Struct, frozen=True):
    """A node's host and its ports."""

    hostname: str
    busbw: str
    endpoints: list[Endpoint]
    perftest: PerftestProgram | None = None


class Listen(msgspec.Struct, frozen=True, tag=True):
    """Listen on an address for connections with the token. Answer: Listening."""

    address: str
    token: str


class Listening(msgspec.Struct, frozen=True):
    """A listener or server waits on this port."""

    ticket: int
    port: int


class Receive(msgspec.Struct, frozen=True, tag=True):
    """Count what arrives at a listener. Answer: TransferEnd."""

    ticket: int
    streams: int
    seconds: float
    limit_s: float


class Send(msgspec.Struct, frozen=True, tag=True):
    """Send to a listener until it closes, from an interface and its address.

    Answer: TransferEnd, without a rate.
    """

    source: tuple[str, str]
    address: str
    port: int
    token: str
    streams: int
    seconds: float
    limit_s: float


class TransferEnd(msgspec.Struct, frozen=True):
    """One end of a transfer. `moved` has the increases of loss, congestion and fault counters."""

    cores: float | None = None
    bound: bool = False
    network_share: float | None = None
    rate: float | None = None
    mtu: int | None = None
    moved: Moved = {}


class Answer(msgspec.Struct, frozen=True, tag=True):
    """Answer small messages at a listener. Answer: Done."""

    ticket: int
    limit_s: float


class Acknowledgment(msgspec.Struct, frozen=True):
    """The answer of a request that has no result."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Time round trips of small messages, from an interface and its address. Answer: Trips."""

    source: tuple[str, str]
    address: str
    port: int
    token: str
    limit_s: float


class RoundTrips(msgspec.Struct, frozen=True):
    """Round trips in seconds, and how many were timed."""

    median_s: float
    p99_s: float | None
    count: int


class Serve(msgspec.Struct, frozen=True, tag=True):
    """Start a server of perftest. Answer: Listening."""

    test: Test
    limit_s: float


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Wait for a server of perftest to end, and kill it if it does not. Answer: TransferEnd."""

    ticket: int
    limit_s: float


class Client(msgspec.Struct, frozen=True, tag=True):
    """Run a client of perftest. Answer: TransferEnd for a bandwidth, RoundTrips for a latency."""

    test: Test
    address: str
    port: int
    limit_s: float


ANSWER_S = 5.0  # for a node to answer that it is there

Request = Describe | Listen | Receive | Send | Answer | Ping | Serve | Finish | Client


@dataclass(frozen=True, slots=True)
class PairEnd:
    """One end of a pair: the host's index, its node, and its port on the rail."""

    host: int
    node: RemoteNode
    port: Endpoint


@dataclass(frozen=True, slots=True)
class PairTest:
    """Measures pairs as `spec` says; `rail` is an index."""

    spec: LinkSpec
    rail: int

    def flows(self, a: PairEnd, b: PairEnd) -> list[PairFlow]:
        """One direction after the other, then both at once if requested.

        A failed test has its error in the flow.
        """
        flows = self._measure([(a, b)]) + self._measure([(b, a)])
        if self.spec.both:
            flows += self._measure([(a, b), (b, a)])
        return flows

    def latency(self, a: PairEnd, b: PairEnd) -> Latency:
        """Times of small messages between two hosts; a failed test has its error in the result."""
        latency = Latency(rail=self.rail, a=a.host, b=b.host)
        try:
            trips = self._ping(a, b) if self.spec.method == TCP else self._perftest_latency(a, b)
        except NoMeasurement as error:
            latency.error = error.message
        else:
            latency.median_s = trips.median_s
            latency.p99_s = trips.p99_s
            latency.count = trips.count
        return latency

    def _measure(self, directions: list[tuple[PairEnd, PairEnd]]) -> list[PairFlow]:
        """Transfers from sender to receiver, all at the same time."""
        start = self._start_tcp if self.spec.method == TCP else self._start_perftest
        started: list[tuple[PairFlow, Callable[[], None]]] = []
        for sender, receiver in directions:
            flow = PairFlow(
                rail=self.rail,
                sender=sender.host,
                receiver=receiver.host,
                together=len(directions) > 1,
            )
            try:
                started.append((flow, start(flow, sender, receiver)))
            except NoMeasurement as error:
                flow.error = error.message
                started.append((flow, lambda: None))
        for flow, finish in started:
            try:
                finish()
            except NoMeasurement as error:
                flow.rate, flow.error = None, error.message
        return [flow for flow, _ in started]

    def _start_tcp(self, flow: PairFlow, sender: PairEnd, receiver: PairEnd) -> Callable[[], None]:
        """Start a transfer; the result waits for its end and fills the flow."""
        spec = self.spec
        limit_s = spec.limit_s
        key = token()
        address = receiver.port.address
        port = receiver.node.ask(Listen(address, key), Listening, limit_s)
        receiving = receiver.node.begin(Receive(port.ticket, spec.streams, spec.seconds, limit_s))
        send = Send(_source(sender), address, port.port, key, spec.streams, spec.seconds, limit_s)
        sending = sender.node.begin(send)
        measured_s = spec.seconds + tcp.WARM_UP_S
        return lambda: self._collect(flow, (sender, sending), (receiver, receiving), measured_s)

    def _start_perftest(
        self, flow: PairFlow, sender: PairEnd, receiver: PairEnd
    ) -> Callable[[], None]:
        """Start a transfer; the result waits for its end and fills the flow."""
        limit_s = self.spec.limit_s
        server = self._test(perftest.BANDWIDTH, receiver.port)
        client = self._test(perftest.BANDWIDTH, sender.port)
        port = receiver.node.ask(Serve(server, limit_s), Listening, 2 * limit_s)
        measured_s = self.spec.seconds + 2 * perftest.MARGIN_S
        sending = sender.node.begin(
            Client(client, receiver.port.address, port.port, measured_s + limit_s)
        )
        receiving = receiver.node.begin(Finish(port.ticket, measured_s + limit_s))
        return lambda: self._collect(flow, (sender, sending), (receiver, receiving), measured_s)

    def _collect(
        self,
        flow: PairFlow,
        sending: tuple[PairEnd, Future[bytes]],
        receiving: tuple[PairEnd, Future[bytes]],
        measured_s: float,
    ) -> None:
        """Fill the flow from both answers.

        The sender's error comes first: a receiver only sees that no one connected.
        """
        limit_s = measured_s + 2 * self.spec.limit_s
        (sender, sender_answer), (receiver, receiver_answer) = sending, receiving
        wait((sender_answer, receiver_answer), measured_s + self.spec.limit_s)
        for place, answer in sending, receiving:
            if not answer.done():  # it works, or is stopped: then it is lost, and not asked again
                place.node.ask(Describe(False), Description, ANSWER_S)
        sent = sender.node.result(sender_answer, TransferEnd, limit_s)
        received = receiver.node.result(receiver_answer, TransferEnd, limit_s)
        flow.rate = received.rate if received.rate is not None else sent.rate
        flow.mtu = sent.mtu
        if sent.cores is not None and received.cores is not None:
            flow.cores = sent.cores, received.cores
        flow.processor_bound = sent.bound or received.bound
        flow.network_share = sent.network_share
        ends = [(sender.node.host, sent.moved), (receiver.node.host, received.moved)]
        flow.moved = {host: moved for host, moved in ends if moved}

    def _ping(self, a: PairEnd, b: PairEnd) -> RoundTrips:
        key, limit_s = token(), self.spec.limit_s
        port = b.node.ask(Listen(b.port.address, key), Listening, limit_s)
        answering = b.node.begin(Answer(port.ticket, limit_s))
        trips = a.node.ask(
            Ping(_source(a), b.port.address, port.port, key, limit_s),
            RoundTrips,
            tcp.PING_S + 2 * limit_s,
        )
        b.node.result(answering, Acknowledgment, limit_s)
        return trips

    def _perftest_latency(self, a: PairEnd, b: PairEnd) -> RoundTrips:
        limit_s = self.spec.limit_s
        serve = Serve(self._test(perftest.LATENCY, b.port), limit_s)
        port = b.node.ask(serve, Listening, 2 * limit_s)
        wait_s = 0.0  # a server without a client would wait forever
        try:
            client = Client(
                self._test(perftest.LATENCY, a.port), b.port.address, port.port, limit_s
            )
            trips = a.node.ask(client, RoundTrips, 2 * limit_s)
            wait_s = limit_s
        finally:
            ending = b.node.begin(Finish(port.ticket, wait_s))
        b.node.result(ending, TransferEnd, 2 * limit_s)
        return trips

    def _test(self, program: str, port: Endpoint) -> perftest.Test:
        spec = self.spec
        bandwidth = program == perftest.BANDWIDTH
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


def _source(place: PairEnd) -> tuple[str, str]:
    return place.port.name, place.port.address
