"""The conclusion where all ranks launched the same: GPUs that wait show it, old dumps do not. Where
they made different calls, it is these, and not the network.
"""

import json
from pathlib import Path

import pytest
from ras_service import as_json, comm, rank

from busbw.core.finding import Verdict
from busbw.core.link_samples import WatchInterval
from busbw.host.gpu import GpuUse
from busbw.job.diagnose import conclude
from busbw.job.ras_report import parse
from busbw.job.types import CommStatus, JobData, JobHostStatus, JobReport, RankStatus, RasReport
from busbw.pattern.pending_calls import outstanding
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
        hosts={"h1": JobHostStatus(gpus=[GpuUse(n, percent, power_w, 700) for n in range(2)])}
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
        "rank 1 (pid 4001, 127.0.0.1, GPU 1) gave no dump, the others wait in all_reduce number 3"
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


@pytest.mark.parametrize(("host", "named"), [("h1", True), ("localhost", False)])
def test_the_network_of_another_machine_is_not_the_cause_in_dumps(host, named):
    """Dumps are read on any machine; without RAS nothing says that the job runs on this one."""
    nothing = parse("")
    watched = WatchInterval(host=host, at="", seconds=5.0, tcp={"RetransSegs": 12})
    hosts = {host: JobHostStatus(watched=watched)}
    report = concluded(before=nothing, after=nothing, outstanding=[OLD], hosts=hosts)
    assert report.message.startswith("rank 1 has not called all_reduce number 3 of group 0")
    assert (f"TCP on {host} retransmits" in report.message) == named


def dumped(folder: Path, *ranks: tuple[str, list[list[int]], bool]) -> list[Outstanding]:
    """What dumps tell whose ranks made 20 calls alike, and then one each: its name, sizes, and
    whether it has ended.
    """
    for number, last in enumerate(ranks):
        calls = [*(("all_reduce", [[4]], True),) * 20, last]
        entries = [
            {
                "profiling_name": f"nccl:{name}",
                "collective_seq_id": seq,
                "process_group": ["0", "default_pg"],
                "input_sizes": sizes,
                "output_sizes": sizes,
                "input_dtypes": ["Float"],
                "output_dtypes": ["Float"],
                "time_created_ns": 1_700_000_000_000_000_000,
                "state": "completed" if ended else "started",
            }
            for seq, (name, sizes, ended) in enumerate(calls, 1)
        ]
        dump = {"version": "2.10", "entries": entries}
        (folder / f"rank_{number}.json").write_text(json.dumps(dump))
    return outstanding([str(folder)])[0]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (
            [("all_reduce", [[4]], False), ("broadcast", [[4]], False)],
            "rank 0 all_reduce of 4 Float; rank 1 broadcast of 4 Float",
        ),
        (
            [("all_reduce", sizes, True) for sizes in ([[2, 4]], [[4]], [[8]])],  # it has ended
            "rank 1 all_reduce of 4 Float; ranks 0, 2 all_reduce of 8 Float",
        ),
    ],
)
def test_different_calls_are_the_cause_and_not_the_network(tmp_path, ranks, said):
    report = concluded(outstanding=dumped(tmp_path, *ranks))
    assert report.verdict is Verdict.FAIL
    assert report.message.startswith(f"ranks made different calls as number 21 of group 0: {said};")
    assert "same collectives in the same order" in report.fix and "busbw link" not in report.fix


@pytest.mark.parametrize(
    "ranks",
    [
        [("all_reduce", [[8]], False), ("all_reduce", [[2, 4]], False)],  # reshaped
        [("_allgather_base", [[8]], False), ("all_gather", [[4], [4]], False)],
        [("alltoall_base", [[8]], False), ("alltoall_base", [[6]], False)],  # unequal parts
        [("gather", [[8]], False), ("gather", [], False)],  # no output on this rank
    ],
)
def test_calls_that_may_differ_between_ranks_are_one_call(tmp_path, ranks):
    (call,) = dumped(tmp_path, *ranks)
    assert (call.seq, call.waiting, call.different) == (21, [0, 1], {})


def test_ranks_that_launched_as_many_but_other_functions_made_different_calls():
    """Each looks late in the function of the other."""
    ranks = [
        {"rank": 0, "AllReduce": 21, "Broadcast": 0},
        {"rank": 1, "AllReduce": 20, "Broadcast": 1},
    ]
    comms = [
        CommStatus(
            name="0xd",
            size=2,
            most={"AllReduce": 21, "Broadcast": 1},
            ranks=[RankStatus(rank=own.pop("rank"), counts=own) for own in ranks],
        )
    ]
    same = RasReport(nccl="2.28.7", complete=True, comms=comms)
    report = concluded(before=same, after=same)
    assert report.message.startswith(
        "ranks of communicator 0xd launched 21 collectives each, but different ones:"
        " rank 0 AllReduce 21; rank 1 AllReduce 20, Broadcast 1;"
    )


TP = {"2": {"ranks": "[0, 1]"}, "3": {"ranks": "[2, 3]"}}


def dump_open(folder: Path, rank: int, calls: list[tuple[str, str, int]], reached: int) -> None:
    """Write a dump that lists only calls that have not ended: group, function and number of each.
    `reached` is the last call that the rank's only group has ended.
    """
    entries = [
        {
            "record_id": 500 + number,
            "pg_id": 4,
            "process_group": [group, "TENSOR_PARALLEL"],
            "collective_seq_id": number,
            "profiling_name": f"nccl:{function}",
            "time_created_ns": 1_700_000_000_000_000_000 + number,
            "input_sizes": [[8]],
            "output_sizes": [[8]],
            "state": "scheduled",
            "retired": False,
        }
        for group, function, number in calls
    ]
    enqueued = max((number for *_, number in calls), default=reached)
    status = {"last_enqueued_collective": enqueued, "last_completed_collective": reached}
    dump = {"version": "2.10", "pg_config": TP, "pg_status": {"4": status}, "entries": entries}
    (folder / f"_dump_{rank}").write_text(json.dumps(dump))


def message_of(folder: Path) -> str:
    no_ras = parse("")
    calls = outstanding([str(folder)])[0]
    return concluded(before=no_ras, after=no_ras, outstanding=calls).message


def test_gpus_that_do_not_end_what_others_have_ended_are_named(tmp_path):
    for number, group, ended in ((0, "2", 7), (1, "2", 6), (2, "3", 6), (3, "3", 7)):
        calls = [(group, "_all_gather_base", seq) for seq in range(ended + 1, 10)]
        dump_open(tmp_path, number, calls, ended)
    assert message_of(tmp_path).startswith(
        "ranks 1, 2 did not end calls that have ended on other GPUs: _all_gather_base number 7 of"
        " group 2 (TENSOR_PARALLEL) has ended on rank 0, not on rank 1; since"
    )


def dump_sends(folder: Path, rank: int, *calls: tuple, first: int = 0) -> None:
    """A dump with entries as PyTorch 2.10 writes them: a name, then what differs."""
    entries = [
        {
            "record_id": first + at,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": 14,
            "p2p_seq_id": at + 1,
            "profiling_name": f"nccl:{name}",
            "time_created_ns": 1_700_000_000_000_000_000 + at,
            "input_sizes": [[77]],
            "input_dtypes": ["Byte"],
            "output_sizes": [[77]],
            "output_dtypes": ["Byte"],
            "state": "completed",
            "retired": True,
            "is_p2p": True,
            **fields,
        }
        for at, (name, fields) in enumerate(calls)
    ]
    dump = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
        "entries": entries,
    }
    (folder / f"_dump_{rank}").write_text(json.dumps(dump))


OPEN = {"state": "started", "retired": False}


def test_a_receive_without_its_send_and_a_send_without_its_receive(tmp_path):
    dump_sends(tmp_path, 0, ("send 0->1", {}))
    dump_sends(tmp_path, 1, ("recv 1<-0", {}), ("recv 1<-0", OPEN))
    assert message_of(tmp_path).startswith(
        "rank 0 has not called send to rank 1 number 2 of group 0 (last: send to rank 1); since"
    )
    dump_sends(tmp_path, 0, ("send 0->1", {}), ("send 0->1", OPEN))
    dump_sends(tmp_path, 1, ("recv 1<-0", {}))
    assert message_of(tmp_path).startswith(
        "rank 1 has not called recv from rank 0 number 2 of group 0 (last: recv from rank 0)"
    )
    dump_sends(tmp_path, 1, ("recv 1<-0", {}), ("recv 1<-0", OPEN))
    assert message_of(tmp_path).startswith(
        "no rank is late: 2 ranks wait in send from rank 0 to rank 1 number 2 of group 0"
    )
    (tmp_path / "_dump_1").unlink()
    assert message_of(tmp_path).startswith("rank 1 gave no dump, the others wait in send to rank 1")


def test_a_small_send_that_ended_before_it_is_received_waits_for_nothing(tmp_path):
    dump_sends(tmp_path, 0, ("send 0->1", {}))
    dump_sends(tmp_path, 1)
    assert outstanding([str(tmp_path)]) == ([], [])


def test_a_send_to_another_rank_names_all_three(tmp_path):
    dump_sends(tmp_path, 0, ("send 0->2", OPEN))
    dump_sends(tmp_path, 1, ("recv 1<-0", OPEN))
    dump_sends(tmp_path, 2)
    none = parse("")
    report = concluded(before=none, after=none, outstanding=outstanding([str(tmp_path)])[0])
    assert report.message.startswith("rank 2 has not called recv from rank 0 number 1 of group 0")
    assert report.evidence[:2] == [
        "Flight Recorder: recv from rank 0 number 1 of group 0: waited for by 0; not called by 2",
        "Flight Recorder: send to rank 1 number 1 of group 0: waited for by 1; not called by 0",
    ]


def test_a_send_and_its_receive_of_different_sizes(tmp_path):
    dump_sends(tmp_path, 0, ("send 0->1", OPEN))
    dump_sends(tmp_path, 1, ("recv 1<-0", {**OPEN, "input_sizes": [[4, 2]]}))
    assert message_of(tmp_path).startswith(
        "ranks made different calls as number 1 of group 0: rank 0 send to rank 1, 77 Byte; rank 1"
        " recv from rank 0, 8 Byte"
    )


def test_a_batch_has_the_state_of_its_last_entry(tmp_path):
    """The calls in it stay `scheduled`."""
    batch = {"state": "scheduled", "retired": False, "p2p_seq_id": 0}
    both = [("send 0->1", batch), ("recv 0<-1", batch)]
    end = {"p2p_seq_id": 0, "input_sizes": [], "output_sizes": []}
    dump_sends(tmp_path, 0, *both, ("coalesced", end))
    dump_sends(tmp_path, 1)
    assert outstanding([str(tmp_path)]) == ([], [])
    dump_sends(tmp_path, 0, *both, ("coalesced", {**end, **OPEN}))
    calls, _ = outstanding([str(tmp_path)])
    assert [(call.function, call.waiting, call.absent) for call in calls] == [
        ("recv from rank 0", [0], {1: "none"}),
        ("send to rank 0", [0], {1: "none"}),
    ]


def test_of_dumps_without_the_first_calls_the_open_ones_are_compared(tmp_path):
    dump_sends(tmp_path, 0, ("send 0->1", {}), ("send 0->1", {}), ("send 0->2", {}), first=90)
    dump_sends(tmp_path, 1, ("recv 1<-0", OPEN), first=41)
    assert message_of(tmp_path).startswith(
        "rank 0 has not called send to rank 1 of group 0 (last: send to rank 2)"
    )
    dump_sends(tmp_path, 0, ("send 0->1", {}), ("send 0->2", OPEN), first=90)  # it may have
    dump_sends(tmp_path, 2, ("recv 2<-0", OPEN), first=17)
    assert message_of(tmp_path).startswith("no rank is late: 1 rank waits in recv from rank 0 of")


def test_a_rank_that_waits_in_a_collective_is_not_late_with_a_send(tmp_path):
    dump_sends(tmp_path, 0, ("all_reduce", {**OPEN, "is_p2p": False, "collective_seq_id": 15}))
    dump_sends(tmp_path, 1, ("recv 1<-0", OPEN))
    dump_sends(tmp_path, 2, ("all_reduce", {"is_p2p": False}))
    assert message_of(tmp_path).startswith(
        "rank 2 has not called all_reduce number 15 of group 0 (last: all_reduce number 14)"
    )


def test_a_receive_from_any_rank_is_not_compared(tmp_path):
    dump_sends(tmp_path, 0, ("recv 0<-?", OPEN))
    assert outstanding([str(tmp_path)]) == (
        [],
        ["not compared: rank 0: recv from rank ? of group 0"],
    )


def test_the_root_of_a_broadcast_may_end_first(tmp_path):
    dump_open(tmp_path, 0, [("2", "broadcast", 8)], 7)
    dump_open(tmp_path, 1, [("2", "broadcast", 7)], 6)
    assert message_of(tmp_path).startswith("no rank is late: 1 rank waits in broadcast number 7")


def test_ranks_of_several_groups_whose_dumps_are_empty_have_not_called(tmp_path):
    for waiting, group in ((0, "2"), (2, "3")):
        dump_open(tmp_path, waiting, [(group, "all_reduce", 7)], 6)
        dump_open(tmp_path, waiting + 1, [], 6)
    assert message_of(tmp_path).startswith(
        "rank 1 has not called all_reduce number 7 of group 2 (TENSOR_PARALLEL) (last: number 6);"
        " rank 3 has not called all_reduce number 7 of group 3 (TENSOR_PARALLEL) (last: number 6);"
    )


def test_a_rank_far_from_the_call_is_not_said_to_lack_it(tmp_path):
    """The number that its dump has may be that of another group."""
    dump_open(tmp_path, 0, [("2", "all_reduce", 7)], 6)
    dump_open(tmp_path, 1, [], 2)
    assert message_of(tmp_path).startswith("no rank is late: 1 rank waits in all_reduce number 7")
