"""Errors of a net plugin: a message that is too long, a peer that closes or dies, an invalid
setting.

The table's version does not matter here: test_net_traffic.py and test_net_setup.py use each.
"""

import signal
import time

import pytest
from nccl_net import INVALID_USAGE, REMOTE_ERROR
from peers import Raised, assert_complete, link, move

pytestmark = [pytest.mark.netlab, pytest.mark.timeout(240), pytest.mark.xdist_group("native")]

M = 1 << 20
# far below the 60 s after which a connection without an answer fails, also on a busy machine
CLOSE_S = DEATH_S = 12.0


def test_a_message_longer_than_its_buffer_is_an_error(job, rail):
    a, b = job(rail)
    logged = ""
    for posted, sent in ((0, 1), (10, 11), (16384, 16385), (M, 2 * M), (3, 64 * M)):
        sender, receiver = link(a, b)[0]
        flow = {"comm": sender, "way": "send", "messages": [[sent, 1]]}
        a.start("traffic", flows=[flow], limit_s=2)
        flow = {"comm": receiver, "way": "recv", "messages": [[sent, 1, posted]]}
        received = b.call("traffic", flows=[flow], limit_s=5)["flows"][0]
        a.result()
        assert received["error"] == INVALID_USAGE
        assert received["faults"] == []
        log = b.log().removeprefix(logged)
        assert str(posted) in log and str(sent) in log, log
        logged += log


def test_a_receiver_closes_with_requests_outstanding(job, family):
    a, b = job(family)
    sender, receiver = link(a, b)[0]
    b.call(
        "traffic",
        flows=[{"comm": receiver, "way": "recv", "messages": [[M, 1]] * 8}],
        until_posted=True,
    )
    closed = b.call("close", way="recv", comm=receiver)
    assert closed["seconds"] < CLOSE_S
    sent = a.call(
        "traffic", flows=[{"comm": sender, "way": "send", "messages": [[M, 1]] * 64}], limit_s=5
    )["flows"][0]
    assert sent["error"] == REMOTE_ERROR
    assert a.call("close", way="send", comm=sender)["seconds"] < CLOSE_S


def test_a_sender_closes_with_requests_outstanding(job, family):
    a, b = job(family)
    sender, receiver = link(a, b)[0]
    a.call(
        "traffic",
        flows=[{"comm": sender, "way": "send", "messages": [[64 * M, 1]] * 8}],
        until_posted=True,
    )
    assert a.call("close", way="send", comm=sender)["seconds"] < CLOSE_S
    received = b.call(
        "traffic",
        flows=[{"comm": receiver, "way": "recv", "messages": [[64 * M, 1]] * 8}],
        limit_s=10,
    )["flows"][0]
    assert (received["error"], received["faults"]) == (REMOTE_ERROR, [])
    assert b.call("close", way="recv", comm=receiver)["seconds"] < CLOSE_S


def test_messages_sent_before_a_close_still_arrive(job, rail):
    a, b = job(rail)
    sender, receiver = link(a, b)[0]
    messages = [[size, number] for number, size in enumerate([0, 10, 1000, 16000])]
    sent = a.call(
        "traffic", flows=[{"comm": sender, "way": "send", "messages": messages}], limit_s=1
    )["flows"][0]
    a.call("close", way="send", comm=sender)
    time.sleep(0.3)
    received = b.call(
        "traffic", flows=[{"comm": receiver, "way": "recv", "messages": messages}], limit_s=5
    )["flows"][0]
    assert received["faults"] == []
    assert received["done"] >= sent["done"], "a completed message must not be lost"


def test_close_does_not_wait_for_a_stopped_peer(job, rail):
    a, b = job(rail)
    (sender, _), reverse_pair = link(a, b)[0], link(b, a)[0]
    a.call(
        "traffic",
        flows=[{"comm": sender, "way": "send", "messages": [[16 * M, 1]] * 8}],
        until_posted=True,
    )
    a.call(
        "traffic",
        flows=[{"comm": reverse_pair[1], "way": "recv", "messages": [[M, 1]] * 8}],
        until_posted=True,
    )
    b.process.send_signal(signal.SIGSTOP)
    try:
        assert a.call("close", way="send", comm=sender)["seconds"] < CLOSE_S
        assert a.call("close", way="recv", comm=reverse_pair[1])["seconds"] < CLOSE_S
    finally:
        b.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("dies", ["sender", "receiver", "waiting sender"])
def test_a_killed_peer_is_named(job, family, dies):
    a, b = job(family)
    sender, receiver = link(a, b)[0]
    endless = [[16 * M, 1]] * 4000  # 67 GB
    if dies != "waiting sender":  # killed in the middle of messages, else before the first
        a.start("traffic", flows=[{"comm": sender, "way": "send", "messages": endless}], limit_s=20)
    b.start("traffic", flows=[{"comm": receiver, "way": "recv", "messages": endless}], limit_s=20)
    time.sleep(0.2)
    dead, lives, host = (b, a, 0) if dies == "receiver" else (a, b, 1)
    dead.kill()
    killed = time.monotonic()
    flow = lives.result()["flows"][0]
    assert flow["error"] == REMOTE_ERROR
    assert flow["faults"] == []
    assert flow["ended"] - killed < DEATH_S
    log = lives.log()
    assert dead.address in log, log
    assert family.hosts[host].interfaces[0] in log, log


def test_a_peer_that_exits_without_closing_is_reported(job, rail):
    a, b = job(rail)
    sender, receiver = link(a, b)[0]
    assert_complete(*move(a, b, (sender, receiver), [[1000, 1]]), messages=1)
    b.start("traffic", flows=[{"comm": receiver, "way": "recv", "messages": [[M, 1]]}], limit_s=10)
    assert a.stop() == 0
    assert b.result()["flows"][0]["error"] == REMOTE_ERROR


def test_a_briefly_stopped_peer_is_not_an_error(job, rail):
    a, b = job(rail, 11)
    pair = link(a, b)[0]
    messages = [[M, number] for number in range(300)]
    a.start("traffic", flows=[{"comm": pair[0], "way": "send", "messages": messages}])
    b.start("traffic", flows=[{"comm": pair[1], "way": "recv", "messages": messages}])
    time.sleep(0.1)
    b.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    b.process.send_signal(signal.SIGCONT)
    assert_complete(a.result()["flows"][0], b.result()["flows"][0], messages=300)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BUSBW_NET_STREAMS", "0"),
        ("BUSBW_NET_STREAMS", "many"),
        ("BUSBW_NET_TIMEOUT", "-1"),
        ("BUSBW_NET_FAMILY", "5"),
        ("BUSBW_NET_STREAM", "4"),
        ("BUSBW_NET_IFNAME", "nonesuch"),
        ("NCCL_SOCKET_IFNAME", "nonesuch"),
    ],
)
def test_an_invalid_setting_ends_init_with_one_clear_line(lone, variable, value):
    peer = lone(**{variable: value, "NCCL_NET": "busbw"})
    with pytest.raises(Raised) as raised:
        peer.call("init")
    assert raised.value.code
    lines = peer.log().splitlines()
    assert len(lines) == 1, lines
    unknown = variable == "BUSBW_NET_STREAM"
    assert lines[0].startswith("busbw") and (variable if unknown else value) in lines[0], lines
    assert value == "nonesuch" or variable in lines[0], lines
