"""Streams over bonds and equal-cost routes: which of several equal links each takes.

A bond combines addresses and ports by exclusive or, so the choice of ports makes the spread of all
connections exact. Linux's routes use a keyed hash: no ports are better than others, and the spread
is random.
"""

from collections import Counter
from itertools import product
from math import comb

import netlab
import pytest
from paths import ADDRESSES, PORTS, Paths, paths
from peers import assert_complete, link, move
from rails import IPV4, IPV6
from streams import Stream, of_process, slave

pytestmark = [pytest.mark.netlab, pytest.mark.timeout(240), pytest.mark.xdist_group("native")]

M = 1 << 20
STREAMS = 4
CONNECTIONS = 8
SLAVES = (2, 4, 8)


@pytest.fixture(
    scope="module",
    params=[(2, IPV4), (4, IPV4), (8, IPV4), (4, IPV6)],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def routed(request):
    try:
        with paths(*request.param, forget=True) as network:
            yield network
    except netlab.Unavailable as error:
        pytest.skip(f"no emulated routers: {error}")


def of_chunks(connections: list[list[Stream]]) -> list[Stream]:
    """All streams but the first of each connection, the inline stream."""
    return [stream for streams in connections for stream in streams[1:]]


def most_by_lot(streams: int, links: int) -> int:
    """The largest number of streams on a link in all but one of a million random draws."""
    chance = 0.0
    for count in range(streams, 0, -1):
        chance += links * comb(streams, count) * (links - 1) ** (streams - count) / links**streams
        if chance > 1e-6:
            return count
    return streams


def test_streams_spread_over_equal_cost_routes(job, routed: Paths):
    a, b = job(routed)
    with routed.watched() as links:
        pairs = link(a, b, CONNECTIONS)
    connections = of_process(a.process.pid)
    assert [len(streams) for streams in connections] == [1 + STREAMS] * CONNECTIONS
    assert set(links) == {stream for streams in connections for stream in streams}
    chunks = Counter(links[stream] for stream in of_chunks(connections))
    assert max(chunks.values()) <= most_by_lot(STREAMS * CONNECTIONS, routed.count), chunks

    # Links without a stream of the connection carry nothing: the first packets showed the routes of
    # all.
    before = routed.carried()
    sent, received = move(a, b, pairs[0], [[M, number] for number in range(32)])
    assert_complete(sent, received, messages=32)
    carried = [after - was for was, after in zip(before, routed.carried(), strict=True)]
    assert sum(carried) > 32 * M
    assert {number for number, bytes_ in enumerate(carried) if bytes_ > M} <= {
        links[stream] for stream in connections[0][1:]
    }, carried


@pytest.mark.parametrize("routed", [(4, IPV4)], indirect=True, ids=["4-IPv4"])
def test_hashing_addresses_only_puts_all_streams_on_one_route(job, routed: Paths):
    a, b = job(routed)
    routed.hash_by(ADDRESSES)
    try:
        with routed.watched() as links:
            link(a, b, CONNECTIONS)
    finally:
        routed.hash_by(PORTS)
    assert len(links) == CONNECTIONS * (1 + STREAMS)
    assert len(set(links.values())) == 1


@pytest.mark.parametrize("routed", [(4, IPV4), (4, IPV6)], indirect=True, ids=["IPv4", "IPv6"])
def test_streams_of_all_connections_spread_evenly_over_a_bond(job, routed: Paths):
    a, b = job(routed)
    link(a, b, CONNECTIONS)
    connections = of_process(a.process.pid)
    assert len(of_chunks(connections)) == STREAMS * CONNECTIONS
    assert uneven([streams[1:] for streams in connections]) == {}
    # Not all ports do this: those that the kernel chooses for unbound sockets spread at random.
    assert uneven(routed.of_kernel(CONNECTIONS, STREAMS)) != {}


def test_streams_of_each_interface_spread_evenly_over_its_bond(job, own_rails):
    rails = own_rails(2)
    a, b = job(rails, BUSBW_NET_MERGE="1")
    link(a, b, CONNECTIONS)
    # by connection and interface: the peer listens on a port of each of its addresses
    connections = of_process(a.process.pid)
    for address, small in zip(rails.hosts[0].addresses, (1, 0), strict=True):
        own = [streams for streams in connections if streams[0].source == address]
        # On a busy machine a connection may find an interface too late, and open all its streams on
        # the other.
        assert [len(streams) for streams in own].count(small + STREAMS // 2) >= CONNECTIONS - 2
        assert uneven([streams[small:] for streams in own]) == {}


def test_streams_of_several_processes_spread_evenly_over_a_bond(job, own_rails):
    rails, connections = own_rails(1), []
    for rank in range(4):
        a, b = job(rails, LOCAL_RANK=str(rank), BUSBW_NET_SPEED="10000")
        link(a, b, 1)
        connections += [streams[1:] for streams in of_process(a.process.pid)]
    assert [len(streams) for streams in connections] == [STREAMS] * 4
    assert uneven(connections) == {}


def uneven(connections: list[list[Stream]]) -> dict[tuple[int, int], list[int]]:
    """Streams on each slave where these differ by more than one, by how many connections and slaves
    there are.

    Computed for the first connection, the first two and so on, and for each number of slaves; empty
    if the slaves are taken in turn.
    """
    problems = {}
    for number, slaves in product(range(1, len(connections) + 1), SLAVES):
        counts = Counter(
            slave(stream, slaves) for streams in connections[:number] for stream in streams
        )
        per_slave = [counts[index] for index in range(slaves)]
        if max(per_slave) - min(per_slave) > 1:
            problems[number, slaves] = per_slave
    return problems


def test_the_bond_hash_matches_hand_computed_values():
    # Bytes 81 00 9c 41 of the ports ^ 00 00 03 00 of both addresses; the halves 81 00 ^ 9f 41 = 1e
    # 41; 1e ^ 41 = 5f; 5f >> 1 = 2f.
    assert slave(Stream("10.79.1.1", "10.79.2.1", 0x8100, 0x9C41), 8) == 7
    # 00 03 00 00 of these addresses: 81 03 ^ 9f 41 = 1e 42; 1e ^ 42 = 5c; 5c >> 1 = 2e.
    assert slave(Stream("fd79::1:1", "fd79::2:1", 0x8100, 0x9F41), 8) == 6
