"""The processes that put GPUs and ports under load: what they answer, how they fail, and for how
long they may run.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from busbw.check import load, measuring
from busbw.check.load import Load, Loaded
from busbw.check.measuring import Loop, Loopback

Program = Callable[[str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """`program("lines of sh")` runs in the place of Python."""
    path = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(path))

    def make(text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    return make


def test_the_answer_of_each_load(program):
    program("""[ "$*" = "-m busbw.check.load_run 1.5" ] && echo '{"reason": "no GPU"}'
[ "$*" = "-m busbw.check.loopback_run 1.5" ] && echo '{"loops": [{"port": "p", "gpu": 0}],' "\\"reason\\": \\"$CUDA_DEVICE_ORDER\\"}"
exit 0""")
    machine = Loaded(1.5)
    assert msgspec.json.decode(machine.call(load.CALL, str).data, type=Load) == Load(
        reason="no GPU"
    )
    answer = msgspec.json.decode(machine.call(measuring.CALL, str).data, type=Loopback)
    assert answer == Loopback((Loop(port="p", gpu=0),), "PCI_BUS_ID")
    assert machine.call("another", lambda: "asked").text == "asked"


@pytest.mark.parametrize(
    ("text", "copies", "loops"),
    [
        ("exit 3", "the copies ended with exit code 3", "perftest ended with exit code 3"),
        (
            "echo first >&2; echo last >&2; exit 1",
            "the copies ended with exit code 1: last",
            "perftest ended with exit code 1: last",
        ),
    ],
)
def test_a_process_that_fails(program, text, copies, loops):
    program(text)
    assert (load._run(1).reason, measuring.run(1).reason) == (copies, loops)


def test_a_process_that_does_not_end(program, monkeypatch):
    for room in (load, measuring):
        monkeypatch.setattr(room, "longest_s", lambda seconds: 0.01)
    program("exec sleep 60")
    assert load._run(1).reason == "the copies did not end within 0 s"
    assert measuring.run(1).reason == "perftest did not end within 0 s"


def test_a_test_of_16_ports_may_take_half_a_minute_more_for_each():
    assert (measuring.longest_s(0), measuring.longest_s(5)) == (16 * 30, 16 * 35)


def test_results_are_not_changed():
    for result in (Load(), Loopback(), Loop(port="p", gpu=0)):
        with pytest.raises(AttributeError):
            result.reason = "another"
    assert json.loads(msgspec.json.encode(Loop(port="p", gpu=0))) == {
        "port": "p",
        "gpu": 0,
        "bytes_per_s": None,
        "error": "",
    }
