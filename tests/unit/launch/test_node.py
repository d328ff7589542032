"""A process that answers requests over its stdin and stdout, and what its driver notices when it
does not.
"""

import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from busbw.launch.node import NodeFailed, NodeLost, RemoteNode

SOURCE = str(Path(__file__).parents[3] / "src")
SERVE = """
import sys, threading
sys.path.insert(0, {source!r})
import msgspec
from busbw.core.errors import NoMeasurement
from busbw.launch.node import serve

class Said(msgspec.Struct):
    text: str

QUICK = threading.Event()

def handle(request):
    request_text = msgspec.json.decode(request)["text"]
    if request_text == "fail":
        raise NoMeasurement("it failed", "try again")
    if request_text == "bug":
        raise KeyError("lost")
    if request_text == "slow":
        assert QUICK.wait(60)  # until the later request has been handled
    if request_text == "quick":
        QUICK.set()
    return Said(request_text.upper())

print("Welcome to this host!", flush=True)
print('{{"not": "an answer"}}', flush=True)
serve(handle, sys.stdin.buffer, sys.stdout.buffer)
"""
LIMIT_S = 10.0


class Say(msgspec.Struct):
    text: str


class Said(msgspec.Struct):
    text: str


class Other(msgspec.Struct):
    number: int


def node(script: str = SERVE) -> RemoteNode:
    return RemoteNode("localhost", [sys.executable, "-c", script.format(source=SOURCE)])


@pytest.fixture
def talking():
    running_node = node()
    yield running_node
    running_node.close()


def test_a_request_is_answered_past_the_greeting(talking):
    assert talking.ask(Say("hello"), Said, LIMIT_S).text == "HELLO"


def test_several_requests_are_open_at_once(talking):
    talking.ask(Say("ready"), Said, LIMIT_S)
    slow = [talking.begin(Say("slow")) for _ in range(4)]
    assert talking.ask(Say("quick"), Said, LIMIT_S).text == "QUICK"
    assert [talking.result(future, Said, LIMIT_S).text for future in slow] == ["SLOW"] * 4


@pytest.mark.parametrize(
    ("request_word", "message"),
    [("fail", "localhost: it failed"), ("bug", "localhost: KeyError: 'lost'")],
)
def test_a_failure_is_the_answer(talking, request_word, message):
    with pytest.raises(NodeFailed) as caught:
        talking.ask(Say(request_word), Said, LIMIT_S)
    assert caught.value.message == message
    assert talking.ask(Say("on"), Said, LIMIT_S).text == "ON"


def test_an_answer_of_another_kind_is_a_failure(talking):
    with pytest.raises(NodeFailed, match="unexpected answer"):
        talking.ask(Say("x"), Other, LIMIT_S)


def test_a_process_that_ends_fails_open_requests():
    ended_node = node("import sys; sys.stdin.readline(); sys.exit('no such disk')")
    with pytest.raises(NodeLost, match=r"localhost: exit code 1: no such disk"):
        ended_node.ask(Say("x"), Said, LIMIT_S)
    with pytest.raises(NodeLost, match="no such disk"):
        ended_node.begin(Say("y"))
    ended_node.close()


def test_a_silent_process_is_lost_after_the_limit():
    silent_node = node("import time; time.sleep(600)")
    with pytest.raises(NodeLost, match=r"no answer within 0\.2 s"):
        silent_node.ask(Say("x"), Said, 0.2)
    assert silent_node.lost is not None
    silent_node.close()  # a process that ignores the end of its input is killed


def test_a_stopped_process_is_killed_at_the_end():
    stopped_node = node()
    stopped_node.ask(Say("x"), Said, LIMIT_S)
    os.kill(stopped_node._process.pid, signal.SIGSTOP)
    stopped_node.close()
    assert stopped_node._process.returncode == -signal.SIGKILL


def test_the_process_ends_when_its_driver_closes(talking):
    talking.ask(Say("x"), Said, LIMIT_S)
    talking.close()
    assert talking._process.returncode == 0


def test_a_missing_agent_is_named(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "/no/such/agent")
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "/no/such/agent")
    with pytest.raises(NodeLost, match="h9: /no/such/agent: No such file"):
        RemoteNode("h9", ["true"])


def test_lines_that_are_not_text_are_ignored():
    script = (
        """import os\nos.write(1, b'{{"id": 1, "error": "' + bytes([255]) + b'"}}' + bytes([10]))\n"""
        + SERVE
    )
    with closing(node(script)) as process:
        assert process.ask(Say("a"), Said, 3.0).text == "A"


def test_an_answer_has_a_largest_size(monkeypatch):
    monkeypatch.setattr("busbw.launch.node._ANSWER_BYTES", 1 << 16)
    with closing(node()) as process:
        assert len(process.ask(Say("a" * 30_000), Said, LIMIT_S).text) == 30_000
        with pytest.raises(NodeLost):
            process.ask(Say("a" * 100_000), Said, 1.0)
