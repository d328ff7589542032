"""Contract of a net plugin for messages: sizes, order, windows, threads; every byte is compared."""

import random
import time

import pytest
from peers import assert_complete, both, link, move

pytestmark = [pytest.mark.netlab, pytest.mark.timeout(240), pytest.mark.xdist_group("native")]

K, M = 1 << 10, 1 << 20
EDGES = [
    0,
    1,
    2,
    31,
    32,
    33,
    4 * K - 1,
    4 * K,
    4 * K + 1,
    16 * K - 1,
    16 * K,
    16 * K + 1,
    64 * K,
    128 * K + 3,
    M - 1,
    M,
    M + 1,
    0,
    4 * M + 5,
]


def drawn_sizes(seed: int, count: int, largest: int) -> list[int]:
    """Sizes whose logarithm is uniform."""
    drawn = random.Random(seed)
    return [int(largest ** drawn.random()) for _ in range(count)]


def messages(sizes: list[int], posted: int = 0) -> list[list[int]]:
    """One of each size, each with its own content."""
    return [[size, number, max(size, posted)] for number, size in enumerate(sizes)]


def test_messages_of_all_sizes_arrive_intact(job, family, version):
    a, b = job(family, version)
    sizes = EDGES + drawn_sizes(version, 150, 8 * M)
    sent, received = move(a, b, link(a, b)[0], messages(sizes))
    assert_complete(sent, received, messages=len(sizes))
    assert received["sizes"] == sizes
    assert sent["sizes"] == sizes


def test_a_message_of_256_mib_arrives_between_small_ones(job, rail, version):
    a, b = job(rail, version)
    sizes = [3, 256 * M, 0, 64 * M + 1, 5]
    sent, received = move(a, b, link(a, b)[0], messages(sizes), limit_s=60)
    assert_complete(sent, received, messages=len(sizes))
    assert received["sizes"] == sizes


def test_headers_add_little_to_what_is_sent(job, own_rails):
    rails = own_rails(1)
    a, b = job(rails)
    pair, (before,) = link(a, b)[0], rails.sent(0)
    move(a, b, pair, messages([M] * 64))
    (after,) = rails.sent(0)
    assert 64 * M <= after - before <= 1.01 * 64 * M


def test_a_posted_buffer_may_be_larger_than_its_message(job, rail, version):
    a, b = job(rail, version)
    sizes = [0, 1, 1000, 70_000, M + 1]
    sent, received = move(a, b, link(a, b)[0], messages(sizes, posted=4 * M))
    assert_complete(sent, received, messages=len(sizes))
    assert received["sizes"] == sizes


def test_eight_requests_in_flight_each_way(job, family, version):
    a, b = job(family, version)
    forward_pair, reverse_pair = link(a, b)[0], link(b, a)[0]
    one_way, other_way = (
        messages([*drawn_sizes(seed, 150, 256 * K), *[M] * 50]) for seed in (1, 2)
    )
    of_a, of_b = both(
        a,
        {
            "flows": [
                {"comm": forward_pair[0], "way": "send", "messages": one_way},
                {"comm": reverse_pair[1], "way": "recv", "messages": other_way},
            ]
        },
        b,
        {
            "flows": [
                {"comm": reverse_pair[0], "way": "send", "messages": other_way},
                {"comm": forward_pair[1], "way": "recv", "messages": one_way},
            ]
        },
    )
    assert_complete(*of_a, *of_b, messages=200)
    assert [report["refused"] for report in of_a + of_b] == [0] * 4, (
        "a window of eight is never refused"
    )


def test_a_preset_request_is_overwritten(job, rail, version):
    a, b = job(rail, version)
    sizes = [0, 100, 20_000, M]
    assert_complete(*move(a, b, link(a, b)[0], messages(sizes), preset=1), messages=4)


def test_sizes_may_be_null_in_test(job, rail, version):
    a, b = job(rail, version)
    assert_complete(
        *move(a, b, link(a, b)[0], messages([0, 1, 20_000, M]), sizes=False), messages=4
    )


def test_a_deferred_send_succeeds_on_retry(job, rail, version):
    a, b = job(rail, version)
    sender, receiver = link(a, b)[0]
    # more than sockets hold
    small_messages = messages([size + 200 * K for size in drawn_sizes(3, 300, 100 * K)])
    a.start(
        "traffic",
        flows=[{"comm": sender, "way": "send", "messages": small_messages, "window": 300}],
    )
    time.sleep(0.5)
    received = b.call(
        "traffic", flows=[{"comm": receiver, "way": "recv", "messages": small_messages}]
    )["flows"][0]
    sent = a.result()["flows"][0]
    assert_complete(sent, received, messages=300)
    assert sent["refused"] > 0, "requests of a connection are bounded"


def test_messages_may_arrive_before_their_receive_is_posted(job, rail, version):
    a, b = job(rail, version)
    for size in (0, 1000, 4 * M):
        sender, receiver = link(a, b)[0]
        posted = messages([size] * 8)
        a.start("traffic", flows=[{"comm": sender, "way": "send", "messages": posted}])
        time.sleep(0.3)
        flow = {"comm": receiver, "way": "recv", "messages": posted}
        received = b.call("traffic", flows=[flow])["flows"][0]
        assert_complete(received, a.result()["flows"][0], messages=8)


def test_an_unread_connection_does_not_block_others(job, rail, version):
    a, b = job(rail, version)
    unread, read = link(a, b, 2)
    stuck = messages([8 * M] * 8)
    a.call(
        "traffic", flows=[{"comm": unread[0], "way": "send", "messages": stuck}], until_posted=True
    )
    assert_complete(*move(a, b, read, messages([1000, M] * 20), limit_s=10), messages=40)


def test_one_thread_sends_while_another_connects(job, rail, version):
    a, b = job(rail, version)
    sender, receiver = link(a, b)[0]
    # 1 s or so of traffic; connections are made meanwhile.
    posted = messages([M] * 400)
    a.call(
        "begin",
        name="traffic",
        line={"do": "traffic", "flows": [{"comm": sender, "way": "send", "messages": posted}]},
    )
    b.call(
        "begin",
        name="traffic",
        line={"do": "traffic", "flows": [{"comm": receiver, "way": "recv", "messages": posted}]},
    )
    pairs = [pair for _ in range(8) for pair in link(a, b, 2)]
    of_a, of_b = a.call("end", name="traffic")["flows"], b.call("end", name="traffic")["flows"]
    assert_complete(*of_a, *of_b, messages=400)
    for pair in pairs:
        assert_complete(*move(a, b, pair, messages([5000])), messages=1)


def test_idle_connections_use_no_cpu_time(job, rail):
    a, b = job(rail, 11)
    link(a, b, 16)
    time.sleep(0.5)
    before = [peer.call("usage") for peer in (a, b)]
    time.sleep(1.5)
    after = [peer.call("usage") for peer in (a, b)]
    used = [late["cpu_s"] - early["cpu_s"] for early, late in zip(before, after, strict=True)]
    assert max(used) < 0.03, f"{used} s of processor time in 1.5 s"
