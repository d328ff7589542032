"""The conclusion where all ranks launched the same: GPUs that wait show it, old dumps do not."""

import pytest
from ras_service import as_json, comm, rank

from busbw.core.finding import Verdict
from busbw.host.gpu import GpuUse
from busbw.job.diagnose import JobData, conclude
from busbw.job.ras_report import parse
from busbw.job.types import HostStatus, JobReport
from busbw.pattern.pending_collective import Outstanding

SAME = parse(as_json(comm(0xD, [rank(0, 8), rank(1, 8)])))
MORE = parse(as_json(comm(0xD, [rank(0, 9), rank(1, 9)])))
OLD = Outstanding(
    group="0",
    seq=3,
    function="all_reduce",
    since_ns=1,
    waiting=[0],
    absent={1: "all_reduce number 2"},
)


def concluded(**fields) -> JobReport:
    report = JobReport(at="", seconds=5.0)
    conclude(JobData(**{"seconds": 5.0, "before": SAME, "after": SAME, **fields}), report)
    return report


@pytest.mark.parametrize(
    ("percent", "power_w", "verdict"),
    [
        (100, 120, Verdict.FAIL),
        (100, 640, Verdict.UNKNOWN),
        (0, 70, Verdict.UNKNOWN),
        (None, None, Verdict.UNKNOWN),
    ],
)
def test_busy_at_low_power_is_a_collective_that_waits(percent, power_w, verdict):
    report = concluded(
        hosts={"h1": HostStatus(gpus=[GpuUse(n, percent, power_w, 700) for n in range(2)])}
    )
    assert report.verdict is verdict
    if verdict is Verdict.FAIL:
        assert report.message.startswith(
            "no rank is late: all launched AllReduce 8 of communicator 0xd, and 2 of 2 GPUs run a"
            " kernel at low power"
        )


def test_old_dumps_of_a_running_job_are_not_a_stall():
    assert concluded(after=MORE, outstanding=[OLD]).verdict is Verdict.PASS
    assert concluded(outstanding=[OLD]).verdict is Verdict.FAIL


def test_all_ranks_in_one_call_of_the_dumps_is_a_stall():
    report = concluded(
        outstanding=[
            Outstanding(
                group="dp",
                seq=3,
                function="all_reduce",
                since_ns=1_700_000_000_000_000_000,
                waiting=[0, 1],
            )
        ]
    )
    assert report.message.startswith(
        "no rank is late: 2 ranks wait in all_reduce number 3 of group dp; since 2023-11-14"
        " 22:13:20 UTC"
    )


def test_a_rank_without_a_dump_is_not_one_that_called_something_else():
    silent = Outstanding(
        group="dp", seq=3, function="all_reduce", since_ns=1, waiting=[0], silent=[1]
    )
    assert concluded(outstanding=[silent]).message.startswith(
        "rank 1 (pid 4001, 127.0.0.1, GPU 1) gave no dump, the others wait in all_reduce number 3 of group dp"
    )
    both = Outstanding(
        group="dp",
        seq=3,
        function="all_reduce",
        since_ns=1,
        waiting=[0],
        absent={1: "all_reduce number 2"},
        silent=[2],
    )
    message = concluded(outstanding=[both]).message
    assert "has not called all_reduce number 3 of group dp (last: all_reduce number 2)" in message
