"""The share of a known link rate that messages of busbw's network plugin reach.

The limiter (tbf) counts frames without preamble, checksum and gap: 14 bytes of Ethernet, then the
MTU, of which IPv4 and TCP with timestamps take 52. The transport's own headers count as loss.
"""

import statistics
import time
from typing import Any

import netlab
import pytest
from peers import Peer, assert_complete, link
from rails import Rails

pytestmark = [pytest.mark.netlab, pytest.mark.timeout(240), pytest.mark.xdist_group("native")]

SIZE = 1 << 20
ETHERNET, HEADERS = 14, 52
# Rates are low, so that they do not depend on the processors: benchmarks/net_loopback.py measures
# high ones. On a busy machine a timer is late by milliseconds, in which tbf makes up for what it
# did not send from its burst: 64 kB take 4 ms at 125 Mbit/s.
BURST_KB = 64
OVERSHOOT = 1.02  # a burst, and messages whose bytes came just before the time that is looked at
STARTED_S = 0.5
GOES_ON_S = 2.0
SOME = 12


def limited(rails: Rails, rate_mbit: float, mtu: int) -> Rails:
    """The rails, with links of this rate and MTU."""
    try:
        rails.limit(rate_mbit, BURST_KB)
    except netlab.Unavailable as error:
        pytest.skip(str(error))
    for host in rails.hosts:
        for interface in host.interfaces:
            netlab.ip("-n", host.namespace, "link", "set", interface, "mtu", str(mtu))
    return rails


def payload(mtu: int) -> float:
    """The share of the bytes counted by the limiter that is TCP payload."""
    return (mtu - HEADERS) / (mtu + ETHERNET)


def begin(a: Peer, b: Peer, seconds: float, rate_mbit: float) -> int:
    """Start messages for about this many seconds; returns their number."""
    sender, receiver = link(a, b)[0]
    count = int(seconds * rate_mbit * 1e6 / 8 / SIZE)
    messages = [[SIZE, number] for number in range(count)]
    a.start("traffic", flows=[{"comm": sender, "way": "send", "messages": messages}])
    b.start("traffic", flows=[{"comm": receiver, "way": "recv", "messages": messages}])
    return count


def mbit_s(flow: dict[str, Any], start: float, end: float) -> float:
    """Mbit/s of the messages that were done between two times: the median over all runs of SOME
    messages, so that a moment in which a busy machine ran something else does not count against the
    link.
    """
    times = [time_s for time_s in flow["times"] if start <= time_s <= end]
    return statistics.median(
        SOME * SIZE * 8 / 1e6 / (after - before)
        for before, after in zip(times, times[SOME:], strict=False)
    )


def test_a_link_is_saturated(job, own_rails):
    a, b = job(limited(own_rails(1), 250, mtu=1500))
    count = begin(a, b, 2.5, 500)
    sent, received = a.result()["flows"][0], b.result()["flows"][0]
    assert_complete(sent, received, messages=count)
    rate, limit = (
        mbit_s(received, received["times"][0] + STARTED_S, received["ended"]),
        250 * payload(1500),
    )
    assert 0.9 * limit <= rate <= OVERSHOOT * limit


def test_four_nics_are_saturated_and_three_after_a_failure(job, own_rails):
    rails = limited(own_rails(4), 125, mtu=9000)
    a, b = job(rails, BUSBW_NET_MERGE="1")
    count = begin(a, b, 5, 500)
    time.sleep(STARTED_S + 1.5)
    rails.cut(3)
    lost_at = time.monotonic()
    sent, received = a.result()["flows"][0], b.result()["flows"][0]
    assert_complete(sent, received, messages=count)
    four = mbit_s(received, received["times"][0] + STARTED_S, lost_at)
    three = mbit_s(received, lost_at + GOES_ON_S, received["ended"])
    assert 0.9 * 500 <= four <= OVERSHOOT * 500 * payload(9000)
    assert 0.9 * 375 <= three <= OVERSHOOT * 375 * payload(9000)
