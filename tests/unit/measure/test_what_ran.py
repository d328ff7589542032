"""What NCCL ran and how it connected the ranks, put together from all processes and shown."""

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asked_engine import RING_LL, TREE_LL, Asked, agreed, party
from test_nccl_connections import log_result, said
from test_nccl_kernels import RING

from busbw.core.errors import TimedOut
from busbw.core.ran import (
    LoggedConnections,
    NcclConnection,
    NcclKernel,
    UnlistedConnections,
    merged,
)
from busbw.core.result import RankDevice
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Engine
from busbw.engines.nccl_log import Log
from busbw.launch.control import SoloControl
from busbw.measure import what_ran
from busbw.measure.job import SweepJob
from busbw.measure.process_groups import Party
from busbw.model import transport_findings
from busbw.report.registry import view
from busbw.stats.compare import compare

JOB = SweepJob(sweep=SweepSpec(collective="all_reduce"), engine="nccl")


class Others(SoloControl):
    """A control channel on which another process gives a reason."""

    def allgather(self, value: Any) -> list[Any]:
        return [value, "busbw-native is not installed on h2"]


@pytest.mark.parametrize(
    ("kernels", "kernel"),
    [
        ([], None),
        ([RING_LL, RING_LL, TREE_LL], RING_LL),
        (
            [NcclKernel("SendRecv", "", 2), NcclKernel("SendRecv", "", 8)],
            NcclKernel("SendRecv", "", 8),
        ),
        ([NcclKernel("SendRecv", "", 8), TREE_LL], TREE_LL),
        ([TREE_LL, RING_LL, RING_LL], RING_LL),
    ],
)
def test_one_kernel_stands_for_all_ranks(
    kernels: list[NcclKernel], kernel: NcclKernel | None
) -> None:
    assert what_ran.of_all(kernels) == kernel


@pytest.mark.parametrize(
    ("fields", "environment", "reason"),
    [
        ({"compat": True}, {}, "the commands of nccl-tests"),
        ({"sweep": SweepSpec(collective="all_reduce", cudagraph=1)}, {}, "from a CUDA graph (-G)"),
        ({}, {"NCCL_PROFILER_PLUGIN": "x.so"}, "NCCL_PROFILER_PLUGIN=x.so is set on "),
        ({}, {"BUSBW_CAPTURE": "/tmp/x"}, "BUSBW_CAPTURE is set on "),
        ({"engine": "mpi"}, {"NCCL_PROFILER_PLUGIN": "x.so"}, ""),
    ],
)
def test_when_nccl_does_not_load_the_profiler(
    fields: dict[str, Any], environment: dict[str, str], reason: str
) -> None:
    with what_ran.asking(msgspec.structs.replace(JOB, **fields), environment) as given:
        assert reason in given and bool(given) == bool(reason)


def test_a_profiler_in_a_file_of_nccl_is_not_displaced(tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("# NCCL_PROFILER_PLUGIN=a.so\nNCCL_PROFILER_PLUGIN=site.so\n")
    environment = {"NCCL_CONF_FILE": str(conf)}
    with what_ran.asking(JOB, environment) as given:
        assert given.startswith(f"NCCL_PROFILER_PLUGIN=site.so is set in {conf} on ")
    with what_ran.asking(JOB, environment | {"NCCL_PROFILER_PLUGIN": ""}) as given:
        assert "site.so" not in given, "NCCL takes the environment"
    os.mkfifo(tmp_path / "fifo")
    with what_ran.asking(JOB, {"NCCL_CONF_FILE": str(tmp_path / "fifo")}) as given:
        assert "is set" not in given


def test_no_process_records_if_one_cannot() -> None:
    recorder = agreed(Asked(), party(Others()))
    assert not recorder.running and recorder.missing() == "busbw-native is not installed on h2"
    gloo = agreed(OneRank(), party(SoloControl()), reason="not installed")
    assert not gloo.running and gloo.missing() == "", "an engine that does not use NCCL"


def test_what_is_missing_is_that_of_all_repeats_and_processes() -> None:
    counts = what_ran.OperationCounts()
    for engine in (Asked(), Asked([RING_LL]), Asked([TREE_LL])):
        world = party(SoloControl())
        world.group = Processes(2)
        recorder = agreed(engine, world, counts)
        assert recorder.running and recorder.missing().startswith("NCCL reported") == bool(
            counts.unknown
        )
        assert recorder.record(lambda: None, 0) == (engine.kernels or [None])[0]
    assert recorder.missing().startswith("NCCL reported nothing of 1 of the 3 operations")
    counts.unknown = 0
    assert recorder.missing() == "at most 16 kernels per operation are kept, and 6 more ran"


@pytest.mark.parametrize(
    ("nccl", "collective", "reason"),
    [
        (22707, "all_reduce", ": NCCL 2.27 does not report kernels over symmetric memory"),
        (22809, "alltoall", ": NCCL 2.28 does not report collectives of copy engines"),
        (22809, "all_reduce", ""),
        (22907, "broadcast", ": NCCL 2.29 and newer do not report broadcasts"),
        (23203, "broadcast", ": NCCL 2.29 and newer do not report broadcasts"),
        (23203, "all_reduce", ""),
    ],
)
def test_what_a_release_does_not_report_is_said(nccl: int, collective: str, reason: str) -> None:
    recorder = agreed(Asked(nccl=nccl), party(SoloControl()), collective=collective)
    recorder.record(lambda: None, 0)
    said = "NCCL reported nothing of 1 of the 1 operations that were asked about"
    assert recorder.missing() == said + reason


def test_an_operation_that_does_not_end_leaves_the_profiler_silent() -> None:
    engine = Asked()
    recorder = agreed(engine, party(SoloControl()))
    engine.stopped = 0
    with pytest.raises(TimedOut):
        recorder.record(lambda: None, -1)
    assert engine.stopped == 1


def test_both_ends_of_a_connection_are_one() -> None:
    sender = LoggedConnections(
        [NcclConnection(0, 1, "NET/IB", True, 2, ["h1:mlx5_0"]), NcclConnection(2, 0, "P2P/CUMEM")],
        {"h1": ["mlx5_0"]},
    )
    receiver = LoggedConnections(
        [NcclConnection(0, 1, "NET/IB", False, 4, ["h2:mlx5_1"])], {"h2": ["mlx5_1"]}
    )
    assert merged([sender, None, receiver]) == LoggedConnections(
        [
            NcclConnection(0, 1, "NET/IB", False, 4, ["h1:mlx5_0", "h2:mlx5_1"]),
            NcclConnection(2, 0, "P2P/CUMEM"),
        ],
        {"h1": ["mlx5_0"], "h2": ["mlx5_1"]},
    )
    assert merged([None, None]) is None


def all_to_all(ranks: int) -> list[NcclConnection]:
    """Of each rank to each other: within hosts of 8 ranks by P2P, one pair by SHM."""
    rows = []
    for sender in range(ranks):
        for receiver in range(ranks):
            ends = [f"h{rank // 8}:mlx5_{rank % 8}" for rank in (sender, receiver)]
            if sender == receiver:
                continue
            if {sender, receiver} == {8, 9}:
                rows.append(NcclConnection(sender, receiver, "SHM/direct"))
            elif sender // 8 == receiver // 8:
                rows.append(NcclConnection(sender, receiver, "P2P/CUMEM"))
            else:
                rows.append(NcclConnection(sender, receiver, "NET/IB", True, 2, ends))
    return rows


def test_of_very_many_connections_only_slow_ones_are_listed() -> None:
    connections = all_to_all(96)
    result = log_result("")
    result.library.nccl = 22809
    result.ran = ran = merged([LoggedConnections(connections)])
    assert ran and {row.transport for row in ran.connections} == {"SHM/direct"}
    assert ran.transports() == {
        "NET/IB with GDR": 96 * 88,
        "P2P/CUMEM": 96 * 7 - 2,
        "SHM/direct": 2,
    }
    assert len(msgspec.json.encode(ran)) < 10_000
    (finding,) = transport_findings.findings(result)
    assert finding.message.startswith("SHM instead of P2P between ranks 8 and 9:")
    shown = view("table", 80, ran=True).render(result)
    assert re.search(r"^ *8 +9 +SHM/direct", shown, re.MULTILINE)
    assert re.search(r"^ *670 +P2P/CUMEM", shown, re.MULTILINE)
    assert "of more than 4096 connections only slow ones are listed" in shown
    assert not any(
        "connected by" in note for note in compare([("a", result)], [("b", result)]).notes
    )


class Processes(SoloControl):
    """A control channel of process 0 of `number` processes, each of which has the log of all."""

    def __init__(self, number: int, first_rank: int = 0) -> None:
        self.processes, self.first_rank = number, first_rank

    def allgather(self, value: Any) -> list[Any]:
        """Of a group: the ranks of each process in it, each with that in the job."""
        return [{number: self.first_rank + number} for number in range(self.processes)]

    def reduce_all(self, values: list[float], how: str) -> list[float]:
        return [self.processes * value for value in values]

    def gather(self, value: Any) -> list[Any]:
        return [value] * self.processes


class OneRank(Engine):
    """One rank of a communicator and job."""

    def __init__(self, rank: int = 0) -> None:
        self.ranks = (rank,)

    def devices(self) -> list[RankDevice]:
        return [RankDevice(self.ranks[0], 1, "h", 0, "", "")]


def test_connections_are_between_the_ranks_of_the_job_and_reduced_before_they_are_sent() -> None:
    text = said(
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM",
        "Channel 00/0 : 1[1] -> 0[0] via SHM/direct",
    )
    few = Party(Processes(2), Processes(2, first_rank=4), 0, 2, 0)
    ran = what_ran.connections(Log(lambda: text), few, OneRank())
    assert ran and [(row.sender, row.receiver) for row in ran.connections] == [
        (4, 5),
        (5, 4),
        (5, 4),
    ]
    many = Party(Processes(8192), Processes(8192), 0, 1, 0)
    ran = what_ran.connections(Log(lambda: text), many, OneRank())
    assert ran and ran.connections == [NcclConnection(1, 0, "SHM/direct", None, 1)]
    assert ran.unlisted == [UnlistedConnections("P2P/CUMEM", None, [], 8192)], (
        "each process counts its sends"
    )


class InTurn(Processes):
    """A control channel of processes that run one after another, process 0 last."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.gathered: list[Any] = []

    def gather(self, value: Any) -> list[Any] | None:
        self.gathered.append(value)
        return self.gathered if len(self.gathered) == self.processes else None


def test_of_very_many_connections_over_a_network_each_counts_once() -> None:
    ranks = 92

    def said_by(rank: int) -> str:
        lines = []
        for other in set(range(ranks)) - {rank}:
            for sender, receiver in ((rank, other), (other, rank)):
                side = "send" if sender == rank else "receive"
                is_direct = (sender, receiver, side) != (0, 2, "receive")
                over_ib = "IB/0/GDRDMA" if is_direct else "IB/0"
                net = "Socket/0" if (sender + receiver) % 2 else over_ib
                lines.append(f"Channel 00/0 : {sender}[0] -> {receiver}[0] [{side}] via NET/{net}")
        return said(*lines, host=f"h{rank}")

    world = InTurn(ranks)
    for rank in reversed(range(ranks)):
        log = Log(partial(said_by, rank))
        ran = what_ran.connections(log, Party(world, world, 0, 1, 0), OneRank(rank))
    assert ran and ran.transports() == {
        "NET/Socket": ranks * ranks // 2,
        "NET/IB with GDR": ranks * (ranks // 2 - 1) - 1,
        "NET/IB without GDR": 1,
    }
    assert NcclConnection(0, 2, "NET/IB", False, 1) in ran.connections, "as its receiver says"
    assert all(row.slow for row in ran.connections)
    assert len(set(map(str, ran.connections))) == len(ran.connections) <= 4096


def test_logs_without_channels_are_alike_in_what_they_state() -> None:
    assert RING_LL.same(NcclKernel("Ring", "LL")) and not RING_LL.same(NcclKernel("Ring", "LL", 2))
    assert not RING_LL.same(TREE_LL)


def test_connections_and_reasons_are_below_the_table_by_request() -> None:
    result = log_result(RING + said("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"))
    result.library.nccl, result.ran_unknown = 22809, "no busbw-native on h2"
    plain, shown = view("table", 80).render(result), view("table", 80, ran=True).render(result)
    row = re.compile(r"^ *0 +1 +SHM/direct +1$", re.MULTILINE)
    assert row.search(shown) and not row.search(plain)
    assert "what NCCL ran is not known: no busbw-native on h2" in shown
    assert "not known" not in plain


@pytest.mark.parametrize(
    ("tool", "environment", "reason"),
    [
        ("busbw 0.1.0", {}, ": the commands of nccl-tests do not record it"),
        ("nccl-tests", {}, ""),
        ("nccl-tests", {"NCCL_DEBUG": "WARN"}, ": with NCCL_DEBUG=WARN NCCL does not log it"),
        (
            "nccl-tests",
            {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/dev/stderr"},
            ": NCCL_DEBUG_FILE=/dev/stderr is no file that can be read",
        ),
    ],
)
def test_why_connections_are_not_recorded(
    tool: str, environment: dict[str, str], reason: str
) -> None:
    result = log_result("")
    result.library.nccl, result.tool, result.environment = 22809, tool, environment
    shown = view("table", ran=True).render(result)
    assert f"\nhow ranks are connected is not recorded{reason}\n" in shown
