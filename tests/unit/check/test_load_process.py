"""The processes that put GPUs and ports under load, alone and together: what they answer, how they fail, and for how
long they may run.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from busbw.check.load import Loaded, all_reduce, gpu_copies, rdma_loopback
from busbw.check.load.all_reduce import AllReduce
from busbw.check.load.gpu_copies import UsableGpus
from busbw.check.load.rdma_loopback import Loopback, PortLoopback

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
    program("""[ "$*" = "-m busbw.check.load.gpu_copies_run 1.5" ] && echo '{"reason": "no GPU"}'
[ "$*" = "-m busbw.check.load.rdma_loopback_run 1.5" ] && echo '{"loops": [{"port": "p", "gpu": 0}],' "\\"reason\\": \\"$CUDA_DEVICE_ORDER\\"}"
[ "$*" = "-m busbw.check.load.all_reduce_run 1.5" ] && echo "{\\"gpus\\": 2, \\"reason\\": \\"$BUSBW_REFERENCE\\"}"
exit 0""")
    machine = Loaded(1.5, Path("own.json"))
    assert msgspec.json.decode(
        machine.call(gpu_copies.CALL, str).data, type=UsableGpus
    ) == UsableGpus(reason="no GPU")
    answer = msgspec.json.decode(machine.call(rdma_loopback.CALL, str).data, type=Loopback)
    assert answer == Loopback((PortLoopback(port="p", gpu=0),), "PCI_BUS_ID")
    reduced = msgspec.json.decode(machine.call(all_reduce.CALL, str).data, type=AllReduce)
    assert reduced == AllReduce(2, reason="own.json")
    assert all_reduce.run(1.5).reason == "false"
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
    assert (gpu_copies.run(1).reason, rdma_loopback.run(1).reason) == (copies, loops)


def test_a_process_that_does_not_end(program, monkeypatch):
    for module in (gpu_copies, rdma_loopback, all_reduce):
        monkeypatch.setattr(module, "longest_s", lambda seconds: 0.01)
    program("exec sleep 60")
    assert gpu_copies.run(1).reason == "the copies did not end within 0 s"
    assert rdma_loopback.run(1).reason == "perftest did not end within 0 s"
    assert all_reduce.run(1).reason == "the all_reduce did not end within 0 s"


def test_a_test_of_16_ports_may_take_half_a_minute_more_for_each():
    assert (rdma_loopback.longest_s(0), rdma_loopback.longest_s(5)) == (16 * 30, 16 * 35)


def test_results_are_not_changed():
    for result in (UsableGpus(), Loopback(), PortLoopback(port="p", gpu=0)):
        with pytest.raises(AttributeError):
            result.reason = "another"
    assert json.loads(msgspec.json.encode(PortLoopback(port="p", gpu=0))) == {
        "port": "p",
        "gpu": 0,
        "bytes_per_s": None,
        "error": "",
    }
