"""The stages of the launch doctor on subnets and TCP, and the part of a host in them."""

import contextlib
import json
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from doctor_answers import DOCKER, FABRIC, answers, context, host_result, identity, on_two

from busbw.check.doctor import networks, node
from busbw.check.doctor.networks import parse_identity
from busbw.core.finding import Verdict
from busbw.core.version import __version__

FAIL, PASS, SKIP, WARN = Verdict.FAIL, Verdict.PASS, Verdict.SKIP, Verdict.WARN


BRIDGE = {"docker0": "172.17.0.1/16"}


@pytest.mark.parametrize(
    ("hosts", "ifname", "verdict", "message", "remaining"),
    [
        ((identity("h1"), identity("h2")), "", PASS, "the hosts share 10.1.0.0/24", [FABRIC]),
        (
            (identity("h1"), identity("h2", eth0="10.2.0.2/24")),
            "",
            FAIL,
            "the hosts have no subnet in common",
            [],
        ),
        (
            (identity("h1"), identity("h2")),
            "10.9.0.0/16",
            FAIL,
            "the hosts have no subnet in common within 10.9.0.0/16",
            [],
        ),
        (
            (identity("h1"), identity("h2", ib0="10.1.0.2/24")),
            "eth0",
            FAIL,
            "--ifname eth0: no such interface with an address on h2",
            [],
        ),
        (
            (identity("h1", **BRIDGE), identity("h2", **BRIDGE)),
            "",
            FAIL,
            "the hosts have no subnet in common",
            [],
        ),
        (
            (
                identity("h1", eth0="10.1.0.1/24", **BRIDGE),
                identity("h2", eth0="10.1.0.2/24", **BRIDGE),
            ),
            "",
            WARN,
            "172.17.0.0/16: several hosts have the same address there",
            [FABRIC],
        ),
        (
            (identity("h1"), identity("h2", mtu=1500)),
            "",
            WARN,
            "MTUs differ on 10.1.0.0/24: h2 differs from the others",
            [FABRIC],
        ),
        (
            (identity("h1", mtu=1500), identity("h2"), identity("h3", mtu=1500)),
            "",
            WARN,
            "MTUs differ on 10.1.0.0/24: h2",
            [FABRIC],
        ),
    ],
)
def test_subnets_that_hosts_share(hosts, ifname, verdict, message, remaining):
    launch_context = context(*hosts, ifname=ifname)
    stage = networks.subnets(launch_context)
    assert (stage.verdict, stage.message.startswith(message), launch_context.networks) == (
        verdict,
        True,
        remaining,
    ), stage


def test_the_odd_mtu_is_named_with_the_usual_one():
    stage = networks.subnets(
        context(identity("h1", mtu=1500), identity("h2"), identity("h3", mtu=1500))
    )
    assert stage.evidence == ("h2: eth0 has MTU 9000, 2 of 3 hosts have 1500",)
    assert stage.fix.startswith("drain h2, and there: ip link set dev eth0 mtu 1500; ")


def failing(*labels, reason="no answer"):
    return {"failed": dict.fromkeys(labels, reason), "problems": {}}


@pytest.mark.parametrize(
    ("second", "verdict", "message", "remaining"),
    [
        (
            failing(),
            PASS,
            "2 hosts connect in both directions on 10.1.0.0/24, 172.17.0.0/16",
            [FABRIC, DOCKER],
        ),
        (
            failing("172.17.0.0/16 h1"),
            WARN,
            "hosts connect on 10.1.0.0/24, but not on 172.17.0.0/16",
            [FABRIC],
        ),
        (
            failing("10.1.0.0/24 h1", "172.17.0.0/16 h1"),
            FAIL,
            "hosts cannot connect to each other on 10.1.0.0/24, 172",
            [FABRIC, DOCKER],
        ),
        (
            failing("10.1.0.0/24 h1", "172.17.0.0/16 h1", reason=node.LARGE_PACKETS_LOST),
            FAIL,
            "large packets are lost on 10.1.0.0/24,",
            [FABRIC, DOCKER],
        ),
        (b"nothing", FAIL, "h2: no answer", [FABRIC, DOCKER]),
        ({"problems": {}}, FAIL, "h2: no answer", [FABRIC, DOCKER]),
    ],
)
def test_connections_between_hosts(monkeypatch, second, verdict, message, remaining):
    launch_context = on_two()
    calls = answers(monkeypatch, host_result("h1", failing()), host_result("h2", second))
    stage = networks.tcp(launch_context)
    assert (stage.verdict, stage.message.startswith(message), launch_context.networks) == (
        verdict,
        True,
        remaining,
    ), stage
    if verdict is WARN:
        assert (stage.evidence, stage.fix) == (
            ("h2 to h1 on 172.17.0.0/16: no answer",),
            "name the subnet that works: --ifname 10.1.0.0/24",
        )
    words, limit_s, inputs = calls[0]
    first, other = (json.loads(inputs[host]) for host in ("h1", "h2"))
    port = first["own"][0][1]
    assert (sorted(words), limit_s, 20000 <= port <= 30000) == (["h1", "h2"], 5.0, True)
    assert first["own"] == [["10.1.0.1", port], ["172.17.0.1", port]]
    assert first["peers"] == {
        "10.1.0.0/24 h2": ["10.1.0.2", port],
        "172.17.0.0/16 h2": ["172.17.0.2", port],
    }
    assert (first["token"], first["seconds"], first["linger"]) == (
        other["token"],
        3.0,
        2.0,
    ) and len(first["token"]) == 32


def test_a_host_that_connects_and_listens(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own_address = ["127.0.0.1", port]
    connected = node.connect(
        {
            "token": "t",
            "seconds": 20,
            "own": [own_address, own_address],
            "peers": {"net h1": own_address},
            "linger": 0,
        }
    )
    assert connected == {"failed": {}, "problems": {"listen 127.0.0.1": "Address already in use"}}
    slept = []
    monkeypatch.setattr(node, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    for seconds, linger in ((20, 0.5), (0.001, 9)):
        node.connect({"token": "t", "seconds": seconds, "own": [], "peers": {}, "linger": linger})
    assert slept[0] == 0.5 and 0 <= slept[1] <= 0.001, (
        "for hosts that start later, within the limit"
    )
    monkeypatch.undo()
    monkeypatch.setattr(node, "_RETRY_S", 0.0)
    refused = node.connect(
        {
            "token": "t",
            "seconds": 0.05,
            "own": [],
            "peers": {"net h1": ["127.0.0.2", port]},
            "linger": 0,
        }
    )
    assert refused == {"failed": {"net h1": "connection refused"}, "problems": {}}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"x" * 32, "another program answered"),
        (b"", "another program answered"),
        (node._code(b"t", b"here"), node.LARGE_PACKETS_LOST),
    ],
)
def test_answers_from_a_service_that_is_not_a_peer(monkeypatch, reply, reason):
    monkeypatch.setattr(node, "_RETRY_S", 0.0)
    failed, times = {}, iter([0.0, 0.0, 99.0, 99.0])
    monkeypatch.setattr(
        node,
        "time",
        type(
            "Time",
            (),
            {
                "monotonic": staticmethod(lambda: next(times, 99.0)),
                "sleep": staticmethod(lambda s: None),
            },
        ),
    )
    monkeypatch.setattr(node, "_receive_bulk", lambda connection: False)

    def serve():
        with server.accept()[0] as connection:
            connection.recv(32)
            connection.sendall(reply)
            with contextlib.suppress(OSError):
                while reason == node.LARGE_PACKETS_LOST and connection.recv(1 << 16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        node._call("net h1", list(server.getsockname()), b"t", 5.0, failed)
    assert failed == {"net h1": reason}


def test_identity_of_this_host():
    answer = node.identity({"names": ["localhost", "no such name."]})
    hostname = socket.gethostname()
    assert (answer["hostname"], answer["busbw"]) == (hostname, __version__)
    assert (
        answer["names"]["localhost"] == ["127.0.0.1"]
        and answer["names"]["no such name."] == []
        and hostname in answer["names"]
    )
    assert "lo" not in answer["addresses"] and answer["mtus"].keys() == answer["addresses"].keys()


def test_of_many_pairs_six_are_shown(monkeypatch):
    launch_context = context(*(identity(f"h{number}") for number in range(1, 10)))
    launch_context.networks = [FABRIC]
    answers(
        monkeypatch,
        host_result("h1", failing(*(f"10.1.0.0/24 h{number}" for number in range(2, 10)))),
    )
    assert [text.partition(" on ")[0] for text in networks.tcp(launch_context).evidence] == [
        f"h1 to h{number}" for number in range(2, 8)
    ]


@pytest.mark.parametrize(("sent", "complete"), [(9, True), (10, True), (8, False), (0, False)])
def test_whether_all_bytes_arrived(monkeypatch, sent, complete):
    monkeypatch.setattr(node, "_BULK", 9)
    receiver, other = socket.socketpair()
    with receiver, other:
        other.sendall(bytes(sent))
        other.shutdown(socket.SHUT_WR)
        assert node._receive_bulk(receiver) is complete


def test_an_older_busbw_reports_no_mtu():
    assert parse_identity(host_result("h1", identity("h1") | {"mtus": {}}))["mtus"] == {"eth0": 0}
