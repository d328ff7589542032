"""GPUDirect RDMA of one host.

There is no GPU here: a program in the place of perftest listens, connects and prints its table.
"""

import itertools
import json
import socket
import sys
from pathlib import Path

import pytest
from healthy import healthy
from loads import loaded, looping
from looking import found, of

from busbw.check.load import rdma_loopback_run
from busbw.check.load.rdma_loopback import CALL, NOT_INSTALLED, WITHOUT_CUDA
from busbw.check.load.rdma_loopback_run import measure_ports
from busbw.check.machine import Machine
from busbw.core.finding import Verdict
from busbw.link import perftest

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)
PROGRAM = f"""#!{sys.executable} -SE
import socket, sys, time
words = sys.argv[1:]
with open(sys.argv[0] + ".asked", "a") as asked: print(*words, file=asked)
if "--version" in words: print("Version: 6.20"); sys.exit()
if "--help" in words: print("--use_cuda=<gpu> --bind_source_ip"); sys.exit()
port, device = int(words[words.index("-p") + 1]), words[words.index("-d") + 1]
if words[-1] != "127.0.0.1":
    if device == "mlx5_1": print(" Couldn't allocate MR"); sys.exit(1)
    with socket.create_server(("127.0.0.1", port)) as server: server.accept()
    time.sleep(60)
with socket.create_connection(("127.0.0.1", port)): pass
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
print(" 1048576    93000            0.00               387.41             0.046184")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ib_write_bw"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    perftest._output_of.cache_clear()
    yield path
    perftest._output_of.cache_clear()


def test_each_port_runs_with_its_nearest_gpu(program):
    result = measure_ports(Machine(healthy(gpus=3, ports=3).source()), 1.0)
    assert [(loop.port, loop.gpu, loop.bytes_per_s, bool(loop.error)) for loop in result.loops] == [
        ("mlx5_0", 0, 387.41e9 / 8, False),
        ("mlx5_1", 1, None, True),
        ("mlx5_2", 2, 387.41e9 / 8, False),
    ]
    assert "Couldn't allocate MR" in result.loops[1].error
    assert not perftest._running, "no server is left"


def test_a_tcp_port_in_use_by_another_program_fails(program, monkeypatch):
    """Between its choice and the start of the server: the client must not connect to a stranger."""
    with socket.create_server(("", 0)) as stranger:
        monkeypatch.setattr(perftest, "free_port", lambda: stranger.getsockname()[1])
        result = measure_ports(Machine(healthy(gpus=2, ports=2).source()), 1.0)
    assert [loop.bytes_per_s for loop in result.loops] == [None, None]
    assert (
        "exit code 1" in result.loops[0].error and "Couldn't allocate MR" in result.loops[1].error
    )


@pytest.mark.parametrize(("layer", "gid"), [("Ethernet", ["3"]), ("InfiniBand", [])])
def test_only_a_port_of_roce_is_given_a_gid_of_roce_v2(program, layer, gid):
    measure_ports(Machine(healthy(gpus=1, ports=1, layer=layer).source()), 1.0)
    runs = [
        line.split()
        for line in Path(f"{program}.asked").read_text().splitlines()
        if "--use_cuda=0" in line
    ]
    gids = [[value for name, value in itertools.pairwise(words) if name == "-x"] for words in runs]
    assert gids == [gid, gid]


def test_port_that_is_down_is_left_out(program):
    tree = healthy(gpus=3, ports=3).file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
    tree.file("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN")
    assert [loop.port for loop in measure_ports(Machine(tree.source()), 1.0).loops] == ["mlx5_2"]


def test_client_that_hangs_is_ended(program, monkeypatch):
    monkeypatch.setattr(rdma_loopback_run, "END_S", 0.0)
    program.write_text(
        PROGRAM.replace(
            "with socket.create_connection", "time.sleep(60)\nwith socket.create_connection"
        )
    )
    (loop,) = measure_ports(Machine(healthy(gpus=1, ports=1).source()), 0.5).loops
    assert "did not end within 0.5 s" in loop.error and not perftest._running


def test_why_no_port_was_tried(program):
    assert (
        measure_ports(Machine(healthy(gpus=2, ports=0).source()), 1.0).reason
        == "no active RDMA port with a GPU"
    )
    program.write_text(PROGRAM.replace("--use_cuda=<gpu>", ""))
    assert measure_ports(Machine(healthy(gpus=2, ports=2).source()), 1.0).reason == WITHOUT_CUDA
    program.unlink()
    perftest._output_of.cache_clear()
    assert measure_ports(Machine(healthy(gpus=2, ports=2).source()), 1.0).reason == NOT_INSTALLED


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"bytes_per_s": 321e9 / 8}, PASS),
        ({"bytes_per_s": 319e9 / 8}, WARN),
        ({"bytes_per_s": None, "error": "`ib_write_bw`: exit code 1: Couldn't allocate MR"}, FAIL),
    ],
)
def test_a_port_is_judged_by_its_rate(values, verdict):
    findings = found("gpudirect-loopback", looping(**values), tree=loaded())
    assert {finding.subject: finding.verdict for finding in findings} == {
        "mlx5_0": PASS,
        "mlx5_1": verdict,
    }


def test_slow_pcie_link_is_not_blamed_on_gpudirect():
    from healthy_pcie import DEVICES, port_bdf

    def narrow(tree):
        tree.file(f"{DEVICES}/{port_bdf(1)}/current_link_width", "8")

    assert (
        of(
            found("gpudirect-loopback", narrow, looping(bytes_per_s=210e9 / 8), tree=loaded()),
            "mlx5_1",
        ).verdict
        is PASS
    )


@pytest.mark.parametrize(
    ("reason", "verdict", "optional"),
    [
        (NOT_INSTALLED, UNKNOWN, True),
        (WITHOUT_CUDA, UNKNOWN, True),
        ("no active RDMA port with a GPU", SKIP, False),
        ("perftest did not end within 60 s", UNKNOWN, False),
    ],
)
def test_reason_why_there_is_no_rate(reason, verdict, optional):
    (finding,) = found(
        "gpudirect-loopback", lambda tree: tree.call(CALL, json.dumps({"reason": reason}))
    )
    assert (finding.verdict, finding.optional, finding.message) == (verdict, optional, reason)


def test_without_a_load_it_is_skipped():
    (finding,) = found("gpudirect-loopback")
    assert finding.verdict is SKIP and "--load" in finding.message
