"""Requests of the driver to a node, and the answers.

A ticket identifies a listener or server on the node.
"""

import msgspec

from busbw.host.endpoints import Endpoint
from busbw.link.perftest import Test
from busbw.link.types import Program

Moved = dict[str, dict[str, int]]


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Describe the host. Answer: Description."""

    perftest: bool


class Description(msgspec.Struct, frozen=True):
    """A node's host and its ports."""

    hostname: str
    busbw: str
    endpoints: list[Endpoint]
    perftest: Program | None = None


class Listen(msgspec.Struct, frozen=True, tag=True):
    """Listen on an address for connections with the token. Answer: Listening."""

    address: str
    token: str


class Listening(msgspec.Struct, frozen=True):
    """A listener or server waits on this port."""

    ticket: int
    port: int


class Receive(msgspec.Struct, frozen=True, tag=True):
    """Count what arrives at a listener. Answer: Taken."""

    ticket: int
    streams: int
    seconds: float
    limit_s: float


class Send(msgspec.Struct, frozen=True, tag=True):
    """Send to a listener until it closes, from an interface and its address.

    Answer: Taken, without a rate.
    """

    source: tuple[str, str]
    address: str
    port: int
    token: str
    streams: int
    seconds: float
    limit_s: float


class Taken(msgspec.Struct, frozen=True):
    """One end of a transfer. `moved` has the increases of loss, congestion and fault counters."""

    cores: float | None = None
    bound: bool = False
    rate: float | None = None
    mtu: int | None = None
    moved: Moved = {}


class Answer(msgspec.Struct, frozen=True, tag=True):
    """Answer small messages at a listener. Answer: Done."""

    ticket: int
    limit_s: float


class Done(msgspec.Struct, frozen=True):
    """It is done."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Time round trips of small messages, from an interface and its address. Answer: Trips."""

    source: tuple[str, str]
    address: str
    port: int
    token: str
    limit_s: float


class Trips(msgspec.Struct, frozen=True):
    """Seconds, and how many were timed."""

    median_s: float
    p99_s: float | None
    count: int


class Serve(msgspec.Struct, frozen=True, tag=True):
    """Start a server of perftest. Answer: Listening."""

    test: Test
    limit_s: float


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Wait for a server of perftest to end, and kill it if it does not. Answer: Taken."""

    ticket: int
    limit_s: float


class Client(msgspec.Struct, frozen=True, tag=True):
    """Run a client of perftest. Answer: Taken for a bandwidth, Trips for a latency."""

    test: Test
    address: str
    port: int
    limit_s: float


Request = Describe | Listen | Receive | Send | Answer | Ping | Serve | Finish | Client
