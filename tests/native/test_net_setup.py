"""Contract of a net plugin up to its first message: init, devices, listen, connect, accept,
memory.
"""

import random
import signal
import time

import pytest
from abi import NET_TABLES
from nccl_net import HANDLE_BYTES, INTERNAL_ERROR, INVALID_USAGE
from peers import Raised, assert_complete, link, move

pytestmark = [pytest.mark.netlab, pytest.mark.timeout(240), pytest.mark.xdist_group("native")]

# A call that waits for the network takes at least a round trip, usually a timer. A busy machine
# makes short calls longer.
AT_ONCE_S = 0.02
FOLLOWS = {
    "guid": 0,
    "ptrSupport": 1,
    "regIsGlobal": 0,
    "port": 0,
    "maxRecvs": 1,
    "netDeviceType": 0,
    "netDeviceVersion": 0,
}


def test_every_interface_is_a_device_with_all_fields_set(lone, rail, version):
    begun = lone(version).call("init")
    assert begun["name"].lower() == "busbw"
    row = NET_TABLES[version]
    assert set(begun["present"]) == {name for name, types in row.entries.items() if types}, (
        "every function of the interface, and no other"
    )
    (device,) = begun["devices"]
    assert device["name"] == rail.hosts[0].interfaces[0]
    assert device["pciPath"] is None, "a veth is on no PCI bus"
    expected = FOLLOWS | row.values
    assert {name: device[name] for name in expected} == expected
    assert (
        0 < device["speed"] < 10_000_000
        and 1024 <= device["maxComms"] <= 1 << 20
        and 0 <= device["latency"] < 1000
    )
    if "maxP2pBytes" in device:
        assert (
            1 << 30 <= device["maxP2pBytes"] <= 1 << 40
            and 1 << 20 <= device["maxCollBytes"] <= 1 << 40
        )


def test_init_and_finalize_work_for_a_second_communicator(job, rail):
    a, b = job(rail, 11)
    first = a.call("init")
    a.call("finalize")
    assert a.call("init")["devices"] == first["devices"]
    pair = link(a, b)[0]
    assert_complete(*move(a, b, pair, [[1000, 1]]), messages=1)


def test_listen_returns_immediately_with_a_unique_handle(job, family, version):
    _, b = job(family, version)
    listeners = [b.call("listen") for _ in range(20)]
    assert all(listener["comm"] for listener in listeners)
    assert len({listener["handle"] for listener in listeners}) == 20
    assert all(
        len(bytes.fromhex(listener["handle"])) == HANDLE_BYTES
        and any(bytes.fromhex(listener["handle"]))
        for listener in listeners
    )
    assert sorted(listener["seconds"] for listener in listeners)[10] < AT_ONCE_S
    for listener in listeners:
        b.call("close", way="listen", comm=listener["comm"])


@pytest.mark.parametrize("first", ["connect", "accept"])
def test_connect_and_accept_in_either_order_never_block(job, family, version, first):
    a, b = job(family, version)
    listening = b.call("listen")
    if first == "accept":
        silent_accept = b.call("accept", listeners=[listening["comm"]], limit_s=0.3)
        assert silent_accept["comms"] == [None], "no peer has connected yet"
        assert silent_accept["calls"] > 1 and silent_accept["slowest_s"] < AT_ONCE_S
    a.start("connect", handles=[listening["handle"]], limit_s=5)
    if first == "connect":
        time.sleep(0.3)
    accepted = b.call("accept", listeners=[listening["comm"]], limit_s=5)
    connected = a.result()
    assert accepted["comms"][0] and connected["comms"][0]
    assert accepted["slowest_s"] < AT_ONCE_S and connected["slowest_s"] < AT_ONCE_S
    # The listener was closed right after accept.
    assert_complete(
        *move(a, b, (connected["comms"][0], accepted["comms"][0]), [[100_000, 1]]), messages=1
    )


def test_connect_does_not_block_on_a_stopped_process(job, rail, version):
    a, b = job(rail, version)
    listening = b.call("listen")
    b.process.send_signal(signal.SIGSTOP)
    try:
        silent = a.call("connect", handles=[listening["handle"]], limit_s=1)
    finally:
        b.process.send_signal(signal.SIGCONT)
    assert silent["comms"] == [None]
    assert silent["calls"] > 1 and silent["slowest_s"] < AT_ONCE_S
    a.start("connect", handles=[listening["handle"]], limit_s=5)
    assert b.call("accept", listeners=[listening["comm"]], limit_s=5)["comms"][0]
    assert a.result()["comms"][0]


@pytest.mark.parametrize("count", [64])
def test_many_simultaneous_connections_in_both_directions(job, rail, version, count):
    a, b = job(rail, version)
    to_b, to_a = [b.call("listen") for _ in range(count)], [a.call("listen") for _ in range(count)]
    for peer, other, own in ((a, to_b, to_a), (b, to_a, to_b)):
        peer.call(
            "begin",
            name="accept",
            line={
                "do": "accept",
                "listeners": [listener["comm"] for listener in own],
                "limit_s": 10,
            },
        )
        peer.call(
            "begin",
            name="connect",
            line={
                "do": "connect",
                "handles": [listener["handle"] for listener in other],
                "limit_s": 10,
            },
        )
    sent = [peer.call("end", name="connect") for peer in (a, b)]
    received = [peer.call("end", name="accept") for peer in (a, b)]
    assert all(all(answer["comms"]) for answer in sent + received)
    # Connections must not be mixed up: each carries messages of its own.
    flows_a, flows_b = [], []
    for number in range(count):
        messages = [[5000 + number, number]]
        flows_a += [{"comm": sent[0]["comms"][number], "way": "send", "messages": messages}]
        flows_b += [{"comm": received[1]["comms"][number], "way": "recv", "messages": messages}]
        flows_b += [{"comm": sent[1]["comms"][number], "way": "send", "messages": messages}]
        flows_a += [{"comm": received[0]["comms"][number], "way": "recv", "messages": messages}]
    a.start("traffic", flows=flows_a)
    b.start("traffic", flows=flows_b)
    assert_complete(*a.result()["flows"], *b.result()["flows"], messages=1)


def test_only_host_memory_can_be_registered(job, rail, version):
    a, b = job(rail, version)
    sender, receiver = link(a, b)[0]
    a.call("memory", comm=sender)
    b.call("memory", comm=receiver)
    with pytest.raises(Raised) as cuda:
        a.call("memory", comm=sender, kind=2)
    assert cuda.value.code == INVALID_USAGE
    with pytest.raises(Raised) as flush:
        b.call("iflush", comm=receiver)
    assert flush.value.code == INTERNAL_ERROR


def test_a_forged_handle_is_refused(job, rail, version):
    a, b = job(rail, version)
    handle = bytes.fromhex(b.call("listen")["handle"])
    drawn = random.Random(4)
    invalid_handles = [drawn.randbytes(HANDLE_BYTES) for _ in range(50)] + [bytes(HANDLE_BYTES)]
    # The first bytes identify a handle and its version.
    invalid_handles += [
        handle[:at] + bytes([handle[at] ^ 0xFF]) + handle[at + 1 :] for at in range(8)
    ]
    outcomes = set()
    for handle_bytes in invalid_handles:
        try:
            outcomes.update(a.call("connect", handles=[handle_bytes.hex()])["comms"])
        except Raised as raised:
            outcomes.add(raised.code)
    assert INVALID_USAGE in outcomes
    assert outcomes <= {None, INVALID_USAGE}, "no forged handle may give a comm"
