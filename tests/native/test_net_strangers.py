"""Strangers that reach a port of the plugin without a token: they are dropped, use no resources,
and delay no peer.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers import Peer, Raised, assert_complete, link, move
from rails import Rails

pytestmark = [pytest.mark.netlab, pytest.mark.timeout(240), pytest.mark.xdist_group("native")]

STRANGER = str(Path(__file__).with_name("stranger.py"))
KINDS = ["scanner", "garbage", "half a hello", "wrong token", "crowd"]
TOKEN = slice(8, 24)  # its position in a handle
IN_TIME_S = 12.0
ENDED_S = 60.0
MORE_BYTES = 8_000_000


@contextlib.contextmanager
def stranger(on: Rails, kind: str, listener: Peer, token: bytes = b"") -> Iterator[dict[str, Any]]:
    """Connects from the first host to every listening port of the second's process; yields what
    came back from the last.
    """
    with contextlib.ExitStack() as undo:
        ports = listener.ports()
        assert ports, "the process listens on no port"
        answer = {}
        for port in ports:
            words = [
                *on.hosts[0].inside,
                sys.executable,
                STRANGER,
                kind,
                listener.address,
                str(port),
                *([token.hex()] if token else []),
            ]
            process = undo.enter_context(
                subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert process.stdin and process.stdout
            undo.callback(process.stdin.close)
            answer = json.loads(process.stdout.readline())
        yield answer


def begin_accept(peer: Peer, listener: int, limit_s: float = 20) -> None:
    """Let the peer call accept repeatedly, as NCCL does."""
    peer.call(
        "begin", name="accept", line={"do": "accept", "listeners": [listener], "limit_s": limit_s}
    )


def connect_in_time(a: Peer, b: Peer, handle: str) -> tuple[int, int]:
    """The pair, once the second process, which is accepting, has the first one's connection."""
    began = time.monotonic()
    connected = a.call("connect", handles=[handle], limit_s=10)["comms"][0]
    accepted = b.call("end", name="accept")["comms"][0]
    assert accepted and connected
    assert time.monotonic() - began < IN_TIME_S
    return connected, accepted


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_connects_despite_strangers(job, family, kind):
    a, b = job(family, 11)
    # so that memory of the first connection is not counted
    assert_complete(*move(a, b, link(a, b)[0], [[1 << 20, 1]] * 8), messages=8)
    listening = b.call("listen")
    before = b.call("usage")
    begin_accept(b, listening["comm"])
    with stranger(family, kind, b):
        time.sleep(0.3)
        assert b.call("usage")["rss"] - before["rss"] < MORE_BYTES
        pair = connect_in_time(a, b, listening["handle"])
        assert_complete(*move(a, b, pair, [[1 << 20, 1], [10, 2]]), messages=2)
        # for the thread that called accept: it may end late on a busy machine
        end = time.monotonic() + ENDED_S
        while (threads := b.call("usage")["threads"]) > before[
            "threads"
        ] and time.monotonic() < end:
            time.sleep(0.05)
        assert threads <= before["threads"], "strangers get no threads"


def test_strangers_do_not_disturb_messages_in_flight(job, rail):
    a, b = job(rail, 11)
    sender, receiver = link(a, b)[0]
    messages = [[1 << 20, number] for number in range(300)]
    begin_accept(b, b.call("listen")["comm"], limit_s=2)
    a.start("traffic", flows=[{"comm": sender, "way": "send", "messages": messages}])
    b.call(
        "begin",
        name="traffic",
        line={"do": "traffic", "flows": [{"comm": receiver, "way": "recv", "messages": messages}]},
    )
    with stranger(rail, "garbage", b):
        assert_complete(
            a.result()["flows"][0], b.call("end", name="traffic")["flows"][0], messages=300
        )
    assert b.call("end", name="accept")["comms"] == [None]


def test_only_the_right_token_is_accepted(job, rail):
    """Shows that the tests above depend on the token and not on the format."""
    _, b = job(rail, 11)
    listening = b.call("listen")
    token = bytes.fromhex(listening["handle"])[TOKEN]
    begin_accept(b, listening["comm"], limit_s=4)
    with stranger(rail, "wrong token", b) as answer:
        assert not answer["back"]
    with stranger(rail, "right token", b, token) as answer:
        assert answer["back"]
    b.call("end", name="accept")


def test_the_token_of_another_listener_is_rejected(job, rail, version):
    a, b = job(rail, version)
    listener, other_listener = b.call("listen"), b.call("listen")
    b.call("close", way="listen", comm=other_listener["comm"])
    swapped = bytearray(bytes.fromhex(listener["handle"]))
    swapped[TOKEN] = bytes.fromhex(other_listener["handle"])[TOKEN]
    assert swapped.hex() != listener["handle"]
    begin_accept(b, listener["comm"])
    with contextlib.suppress(Raised):
        assert a.call("connect", handles=[swapped.hex()], limit_s=1)["comms"] == [None]
    connect_in_time(a, b, listener["handle"])
