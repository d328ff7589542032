"""What NCCL ran and how it connected the ranks, put together from all processes and shown."""

import re
from typing import Any

import msgspec
import pytest
from test_nccl_connections import log_result, said
from test_nccl_kernels import RING

from busbw.core.ran import Connection, Kernel, Ran, merged
from busbw.core.sweep import SweepSpec
from busbw.engines.base import Engine
from busbw.launch.control import SoloControl
from busbw.measure import what_ran
from busbw.measure.job import SweepJob
from busbw.report.registry import view

JOB = SweepJob(sweep=SweepSpec(collective="all_reduce"), engine="nccl")
RING_LL, TREE_LL = Kernel("Ring", "LL", 4), Kernel("Tree", "LL", 4)


class Others(SoloControl):
    """A control channel on which another process gives a reason."""

    def allgather(self, value: Any) -> list[Any]:
        return [value, "busbw-native is not installed on h2"]


class Asked(Engine):
    """An engine of NCCL whose profiler takes nothing."""

    lost = 0

    def profiler(self) -> Any:
        return self

    def start(self) -> bool:
        return True

    def stop(self) -> list[Kernel]:
        return []


@pytest.mark.parametrize(
    ("kernels", "kernel"),
    [
        ([], None),
        ([RING_LL, RING_LL, TREE_LL], RING_LL),
        ([Kernel("SendRecv", "", 2), Kernel("SendRecv", "", 8)], Kernel("SendRecv", "", 8)),
        ([Kernel("SendRecv", "", 8), TREE_LL], TREE_LL),
    ],
)
def test_one_kernel_stands_for_all_ranks(kernels: list[Kernel], kernel: Kernel | None) -> None:
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


def test_no_process_records_if_one_cannot() -> None:
    alone = what_ran.agreed(Asked(), SoloControl(), SoloControl(), "")
    assert alone.running and alone.missing() == ""
    recorder = what_ran.agreed(Asked(), Others(), SoloControl(), "")
    assert not recorder.running and recorder.missing() == "busbw-native is not installed on h2"
    assert alone.record(lambda: None, 0) is None
    assert alone.missing().startswith("NCCL reported nothing of 1 of the 1 operations")


def test_both_ends_of_a_connection_are_one() -> None:
    sender = Ran(
        [Connection(0, 1, "NET/IB", True, 2, ["h1:mlx5_0"]), Connection(2, 0, "P2P/CUMEM")],
        {"h1": ["mlx5_0"]},
    )
    receiver = Ran([Connection(0, 1, "NET/IB", False, 4, ["h2:mlx5_1"])], {"h2": ["mlx5_1"]})
    assert merged([sender, None, receiver]) == Ran(
        [
            Connection(0, 1, "NET/IB", False, 4, ["h1:mlx5_0", "h2:mlx5_1"]),
            Connection(2, 0, "P2P/CUMEM"),
        ],
        {"h1": ["mlx5_0"], "h2": ["mlx5_1"]},
    )
    assert merged([None, None]) is None


def test_logs_without_channels_are_alike_in_what_they_state() -> None:
    assert RING_LL.same(Kernel("Ring", "LL")) and not RING_LL.same(Kernel("Ring", "LL", 2))
    assert not RING_LL.same(TREE_LL)


def test_connections_and_reasons_are_below_the_table_by_request() -> None:
    result = log_result(RING + said("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"))
    result.library.nccl, result.ran_unknown = 22809, "no busbw-native on h2"
    plain, shown = view("table", 80).render(result), view("table", 80, ran=True).render(result)
    row = re.compile(r"^ *0 +1 +SHM/direct +1$", re.MULTILINE)
    assert row.search(shown) and not row.search(plain)
    assert "what NCCL ran is not known: no busbw-native on h2" in shown
    assert "not known" not in plain
    result.ran = None
    assert "how ranks are connected is not known" in view("table", 80, ran=True).render(result)
