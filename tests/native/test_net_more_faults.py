"""Links that fail at awkward moments, and a second fault after the first: the remaining paths
suffice.
"""

import time
from typing import Any

import pytest
from nccl_net import REMOTE_ERROR
from peers import Peer, assert_complete, link, move
from rails import Rails

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("native faults"),
]

SOME = 20_000  # bytes of a message of one chunk
DOUBT_S = 12.0


def begin(peer: Peer, name: str, comm: int, messages: list[list[int]], limit_s: float = 20) -> None:
    """Send in a separate thread, so that its requests are tested while others are posted."""
    peer.call(
        "begin",
        name=name,
        line={
            "do": "traffic",
            "flows": [{"comm": comm, "way": "send", "messages": messages}],
            "limit_s": limit_s,
        },
    )


def end(peer: Peer, name: str) -> dict[str, Any]:
    flow: dict[str, Any] = peer.call("end", name=name)["flows"][0]
    return flow


def take(peer: Peer, comm: int, number: int) -> None:
    flows = [{"comm": comm, "way": "recv", "messages": [[SOME, number]]}]
    assert_complete(peer.call("traffic", flows=flows, limit_s=10)["flows"][0], messages=1)


def over(rails: Rails, rail: int, act: Any) -> bool:
    """Whether `act` sends over this rail only."""
    before = rails.sent(0)
    act()
    time.sleep(0.3)
    sent = [late - early for early, late in zip(before, rails.sent(0), strict=True)]
    return sent[rail] > SOME > sum(sent) - sent[rail]


def test_an_acknowledgement_moves_to_another_stream(job, own_rails):
    """Both messages are in the receiver's kernel when the rail fails; the second is received
    once the failure is known.
    """
    rails = own_rails(2)
    a, b = job(rails, BUSBW_NET_STREAMS="2", BUSBW_NET_MERGE="1", BUSBW_NET_INLINE_IDLE="0")
    pair = link(a, b)[0]
    time.sleep(0.3)  # all streams are idle: the first of them, on rail 1, takes each message
    assert all(
        over(rails, 1, lambda number=number: begin(a, f"m{number}", pair[0], [[SOME, number]]))
        for number in range(2)
    )
    rails.cut(1)
    take(b, pair[1], 0)
    time.sleep(1.5)
    take(b, pair[1], 1)
    taken_s = time.monotonic()
    sent = [end(a, f"m{number}") for number in range(2)]
    assert_complete(*sent, messages=1)
    assert sent[1]["ended"] - taken_s < DOUBT_S


def test_a_recovered_rail_takes_over_when_the_other_fails(job, own_rails):
    rails = own_rails(2)
    rails.limit(5, burst_kb=16)
    a, b = job(rails, BUSBW_NET_STREAMS="2", BUSBW_NET_THREADS="2")
    pair = link(a, b)[0]
    time.sleep(0.3)
    rails.cut(1)
    assert_complete(*move(a, b, pair, [[30_000, 1]]), messages=1)
    time.sleep(1)
    rails.mend(1)
    time.sleep(3)  # all threads would sleep by now
    rails.cut(0)
    assert_complete(*move(a, b, pair, [[60_000, 2]], limit_s=15), messages=1)


def test_a_peer_death_after_a_rail_failure_is_reported(job, own_rails):
    rails = own_rails(2)
    a, b = job(rails, BUSBW_NET_STREAMS="4", BUSBW_NET_THREADS="4", BUSBW_NET_TIMEOUT="2")
    pair = link(a, b)[0]
    time.sleep(0.3)
    rails.blackhole(1)
    assert_complete(*move(a, b, pair, [[60_000, 1]]), messages=1)
    time.sleep(0.5)
    b.kill()
    time.sleep(0.5)
    flow = a.call(
        "traffic", flows=[{"comm": pair[0], "way": "send", "messages": [[60_000, 2]]}], limit_s=15
    )["flows"][0]
    assert flow["error"] == REMOTE_ERROR


def test_small_messages_survive_loss_of_the_inline_stream(job, own_rails):
    """Rail 1 fails until its streams are abandoned, then rail 0 with the inline stream; small
    messages are sent throughout.
    """
    rails = own_rails(3)
    rails.limit(20)
    a, b = job(rails, BUSBW_NET_THREADS="4", BUSBW_NET_TIMEOUT="1", BUSBW_NET_MERGE="1")
    pair = link(a, b)[0]
    time.sleep(0.5)
    messages = [[16_000, number] for number in range(1200)]
    a.start("traffic", flows=[{"comm": pair[0], "way": "send", "messages": messages}], limit_s=25)
    b.start("traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}], limit_s=25)
    time.sleep(0.5)
    rails.cut(1)
    time.sleep(4)
    rails.cut(0)
    assert_complete(a.result()["flows"][0], b.result()["flows"][0], messages=len(messages))


def test_completed_small_messages_survive_a_lost_rail_and_close(job, own_rails):
    rails = own_rails(2)
    a, b = job(rails)
    pair = link(a, b)[0]
    messages = [[1000, number] for number in range(6)]
    assert_complete(*move(a, b, pair, messages), messages=6)
    rails.cut(0)
    assert_complete(
        a.call("traffic", flows=[{"comm": pair[0], "way": "send", "messages": messages}])["flows"][
            0
        ],
        messages=6,
    )
    a.call("close", way="send", comm=pair[0])
    assert_complete(
        b.call(
            "traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}], limit_s=10
        )["flows"][0],
        messages=6,
    )


def test_a_lost_rail_is_noticed_under_steady_small_messages(job, own_rails):
    rails = own_rails(2)
    a, b = job(rails, BUSBW_NET_MERGE="1")
    pair = link(a, b)[0]
    messages = [[100, number] for number in range(15)]
    b.start("traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}], limit_s=10)
    sent = []
    for message in messages:  # each before a stall is noticed
        if len(sent) == 2:
            rails.blackhole(0)
        sent += a.call("traffic", flows=[{"comm": pair[0], "way": "send", "messages": [message]}])[
            "flows"
        ][0]["times"]
        time.sleep(0.2)
    received = b.result()["flows"][0]
    assert_complete(received, messages=len(messages))
    delays_s = [
        received_s - sent_s for sent_s, received_s in zip(sent, received["times"], strict=True)
    ]
    assert max(delays_s) < 1.5, delays_s
