"""Links that fail while messages are in flight: the others continue, and nothing is corrupted."""

import itertools
import time
from typing import Any

import netlab
import pytest
from nccl_net import REMOTE_ERROR
from peers import Peer, assert_complete, link, move
from rails import IPV4, IPV6, Rails

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("native faults"),
]

M = 1 << 20
RATE_MBIT = 200.0
RATE = RATE_MBIT * 1e6 / 8  # bytes a second of one rail
# after a NIC is lost: far below the 60 s after which the connection would fail, also on a busy
# machine
GOES_ON_S = 12.0
RUN = 40  # messages: many more than complete at the same moment


def limited(rails: Rails) -> Rails:
    try:
        rails.limit(RATE_MBIT)
    except netlab.Unavailable as error:
        pytest.skip(str(error))
    return rails


def begin(
    a: Peer, b: Peer, pair: tuple[int, int], seconds: float, rails: int, limit_s: float = 60
) -> int:
    """The number of messages for about this many seconds at the rate of the rails."""
    count = int(seconds * rails * RATE / M)
    messages = [[M, number] for number in range(count)]
    a.start(
        "traffic", flows=[{"comm": pair[0], "way": "send", "messages": messages}], limit_s=limit_s
    )
    b.start(
        "traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}], limit_s=limit_s
    )
    return count


def well_begun(rails: Rails, nbytes: float) -> list[int]:
    """Wait until the first host has sent this many bytes; returns the bytes on each rail."""
    end = time.monotonic() + 30
    while sum(sent := rails.sent(0)) < nbytes and time.monotonic() < end:
        time.sleep(0.02)
    return sent


def stand_still(rails: Rails) -> None:
    """Wait until the first host stops sending because the other stops reading."""
    end, sent = time.monotonic() + 10, rails.sent(0)
    while time.monotonic() < end:
        time.sleep(0.1)
        before, sent = sent, rails.sent(0)
        if sum(sent) - sum(before) < 10_000 < sum(sent):
            return
    raise AssertionError(f"it still sends after 10 s: {sent}")


def pause(flow: dict[str, Any], since: float) -> float:
    """The longest time in seconds without a completed message that ends after `since`."""
    return max(late - early for early, late in itertools.pairwise(flow["times"]) if late > since)


def rate_from(flow: dict[str, Any], since: float) -> float:
    """Bytes per second of the best RUN messages in a row.

    The links are limited, so other load can only reduce it.
    """
    late = [time_s for time_s in flow["times"] if time_s > since]
    run = min(RUN, len(late) - 1)
    return run * M / min(end - begin for begin, end in zip(late, late[run:], strict=False))


@pytest.mark.parametrize(
    ("how", "family", "seconds"),
    [("cable", IPV4, 5), ("interface", IPV4, 2), ("interface", IPV6, 2)],
)
def test_traffic_resumes_when_a_link_recovers_after_seconds(job, own_rails, how, family, seconds):
    rails = limited(own_rails(1, family))
    a, b = job(rails)
    count = begin(a, b, link(a, b)[0], seconds=2, rails=1)
    time.sleep(0.7)
    if how == "cable":
        rails.cut(0)
    else:
        rails.down(0, host=0)
    time.sleep(seconds)
    if how == "cable":
        rails.mend(0)
    else:
        rails.up(0, host=0)
    mended = time.monotonic()
    sent, received = a.result()["flows"][0], b.result()["flows"][0]
    assert_complete(sent, received, messages=count)
    assert received["times"][-1] > mended, "the link was down in the middle"
    # TCP doubles the time between attempts, so the next one comes at most as late as the link was
    # down, and a little later under load.
    assert pause(received, mended) < 2 * seconds + GOES_ON_S


@pytest.mark.parametrize("lost", ["cable", "interface", "blackhole"])
def test_one_of_two_nics_fails_permanently(job, own_rails, lost):
    rails = limited(own_rails(2))
    a, b = job(rails, BUSBW_NET_MERGE="1")
    count = begin(a, b, link(a, b)[0], seconds=3, rails=2)
    before = well_begun(rails, RATE)
    {
        "cable": lambda: rails.cut(1),
        "interface": lambda: rails.down(1, host=0),
        "blackhole": lambda: rails.blackhole(1),
    }[lost]()
    since = time.monotonic()
    sent, received = a.result()["flows"][0], b.result()["flows"][0]
    assert_complete(sent, received, messages=count)
    assert min(before) > 0.25 * sum(before), f"both NICs carry messages: {before}"
    stalled_s = pause(received, since)
    assert stalled_s < GOES_ON_S
    # The other NIC needs 5 seconds for the rest.
    assert rate_from(received, since + stalled_s) > 0.6 * RATE


def test_the_nic_that_connected_first_fails(job, own_rails):
    rails = limited(own_rails(2))
    a, b = job(rails)
    count = begin(a, b, link(a, b)[0], seconds=3, rails=2)
    time.sleep(1.2)
    rails.cut(0)
    since = time.monotonic()
    sent, received = a.result()["flows"][0], b.result()["flows"][0]
    assert_complete(sent, received, messages=count)
    assert pause(received, since) < GOES_ON_S


@pytest.mark.parametrize("lost", [0, 1])
def test_a_nic_fails_while_its_link_is_saturated(job, own_rails, lost):
    rails = own_rails(2)
    a, b = job(rails)
    pair, messages = link(a, b)[0], [[M, number] for number in range(1500)]
    a.start("traffic", flows=[{"comm": pair[0], "way": "send", "messages": messages}], limit_s=45)
    b.start("traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}], limit_s=45)
    well_begun(rails, 64 * M)
    rails.down(lost, host=0)
    since = time.monotonic()
    sent, received = a.result()["flows"][0], b.result()["flows"][0]
    assert_complete(sent, received, messages=1500)
    assert pause(received, since) < GOES_ON_S  # its windows may be closed at that moment


def test_a_nic_fails_while_the_peer_is_not_receiving(job, own_rails):
    """The lost link's windows are closed, so nothing is retransmitted, and its probes get no
    answer.
    """
    rails = own_rails(2)
    a, b = job(rails)
    pair, messages = link(a, b)[0], [[M, number] for number in range(300)]
    a.start("traffic", flows=[{"comm": pair[0], "way": "send", "messages": messages}], limit_s=45)
    stand_still(rails)
    rails.down(0, host=0)
    since = time.monotonic()
    b.start("traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}], limit_s=45)
    sent, received = a.result()["flows"][0], b.result()["flows"][0]
    assert_complete(sent, received, messages=300)
    assert pause({"times": [since, *received["times"]]}, since) < GOES_ON_S


def test_a_slow_receiver_is_not_reported_as_a_failed_link(job, own_rails):
    a, b = job(own_rails(2))
    pair, messages = link(a, b)[0], [[M, number] for number in range(20)]
    a.start("traffic", flows=[{"comm": pair[0], "way": "send", "messages": messages}], limit_s=15)
    time.sleep(4)
    b.start("traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}], limit_s=15)
    assert_complete(a.result()["flows"][0], b.result()["flows"][0], messages=20)
    assert "makes no progress" not in a.log()


def test_small_messages_continue_after_a_nic_fails(job, own_rails):
    rails = own_rails(2)
    a, b = job(rails)
    pair = link(a, b)[0]
    for number, broken in enumerate([None, 0]):
        if broken is not None:
            rails.cut(broken)
        began = time.monotonic()
        assert_complete(
            *move(a, b, pair, [[100 + number, seed] for seed in range(50)]), messages=50
        )
        assert time.monotonic() - began < GOES_ON_S


def test_losing_every_route_names_the_peer_and_interface(job, own_rails):
    rails = limited(own_rails(2))
    a, b = job(rails, BUSBW_NET_TIMEOUT="2")
    begin(a, b, link(a, b)[0], seconds=20, rails=2, limit_s=12)
    time.sleep(1)
    rails.blackhole(0)
    rails.blackhole(1)
    since = time.monotonic()
    for peer, other, host in ((a, b, 0), (b, a, 1)):
        flow = peer.result()["flows"][0]
        assert (flow["error"], flow["faults"]) == (REMOTE_ERROR, [])
        assert flow["ended"] - since < 2 + 4
        log = peer.log()
        assert other.address in log and rails.hosts[host].interfaces[0] in log, log


def test_an_idle_connection_survives_a_link_outage(job, own_rails):
    rails = own_rails(1)
    a, b = job(rails)
    pair = link(a, b)[0]
    assert_complete(*move(a, b, pair, [[M, 1]]), messages=1)
    rails.cut(0)
    time.sleep(3)
    rails.mend(0)
    assert_complete(*move(a, b, pair, [[M, 2], [10, 3]]), messages=2)
