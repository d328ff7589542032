"""Rails that fail before or while a connection is opened: the others suffice, and one that
recovers is used.
"""

import time

import netlab
import pytest
from peers import Peer, assert_complete, link, move
from rails import IPV4, IPV6

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("native faults"),
]

PAUSE_S = 0.05  # for packets of an idle network
SOME = [[1 << 20, 1], [100, 2]]


def call_once(peer: Peer, do: str, target: object) -> int | None:
    """Call connect or accept once, and wait for packets; returns the comm."""
    comm: int | None = peer.call(do, **{"handles" if do == "connect" else "listeners": [target]})[
        "comms"
    ][0]
    time.sleep(PAUSE_S)
    return comm


@pytest.mark.parametrize("how", ["blackhole", "interface"])
def test_a_rail_fails_before_the_peer_knows_the_streams(job, own_rails, how):
    rails = own_rails(2)
    a, b = job(rails)
    listening = b.call("listen")
    for _ in range(2):  # streams open and send the token
        assert call_once(a, "connect", listening["handle"]) is None
    assert call_once(b, "accept", listening["comm"]) is None  # they are accepted
    if how == "blackhole":
        rails.blackhole(0)
    else:
        rails.down(0, host=0)
    (connected,) = a.call("connect", handles=[listening["handle"]], limit_s=5)["comms"]
    (accepted,) = b.call("accept", listeners=[listening["comm"]], limit_s=5)["comms"]
    assert connected and accepted
    assert_complete(*move(a, b, (connected, accepted), SOME, limit_s=10), messages=2)


@pytest.mark.parametrize("family", [IPV4, IPV6])
def test_connect_waits_for_an_interface_that_is_down(job, own_rails, family):
    rails = own_rails(2, family)
    a, b = job(rails)
    listening = b.call("listen")
    for rail in (0, 1):
        rails.down(rail, host=0)
    a.start("connect", handles=[listening["handle"]], limit_s=10)
    b.start("accept", listeners=[listening["comm"]], limit_s=10)
    time.sleep(1)  # many attempts
    rails.up(1, host=0)
    connected, accepted = a.result()["comms"][0], b.result()["comms"][0]
    assert connected and accepted
    assert_complete(*move(a, b, (connected, accepted), SOME, limit_s=10), messages=2)


def test_an_interface_of_the_receiver_is_missing(job, own_rails):
    rails = own_rails(2)
    a, b = job(rails)
    netlab.ip("-n", rails.hosts[1].namespace, "link", "del", rails.hosts[1].interfaces[1])
    assert_complete(*move(a, b, link(a, b)[0], SOME), messages=2)


@pytest.mark.parametrize("streams", ["1", "4"])
def test_one_rail_fails_before_connecting_and_one_after(job, own_rails, streams):
    rails = own_rails(3)
    a, b = job(rails, BUSBW_NET_STREAMS=streams)
    rails.blackhole(0)
    pair = link(a, b)[0]
    rails.cut(2)
    assert_complete(*move(a, b, pair, SOME, limit_s=10), messages=2)
