"""Files of the profiler plugin as patterns: processes that drive several GPUs, and communicators
that are made again.
"""

from busbw.measure.profiler_file import (
    COLL,
    COLL_CALL,
    COMM,
    P2P,
    P2P_CALL,
    TIMED,
    UNKNOWN,
    ProcessFile,
    ProfilerRecord,
)
from busbw.pattern.collector import Collector
from busbw.pattern.merge import ObservedCall
from busbw.pattern.pattern_builder import pattern
from busbw.pattern.readers import profiler
from busbw.pattern.replay.plan import ReplayPlan
from busbw.pattern.text import foot

ALL_REDUCE, RECV, FLOAT = 4, 7, 7


def record(kind: int, **fields: int) -> ProfilerRecord:
    empty = dict.fromkeys(ProfilerRecord._fields, 0) | {
        "algorithm": UNKNOWN,
        "protocol": UNKNOWN,
        "dtype": FLOAT,
        "function": ALL_REDUCE,
    }
    return ProfilerRecord(**(empty | {"kind": kind} | fields))


def comm(number: int, *, id: int, rank: int, ranks: int = 4) -> ProfilerRecord:
    return record(COMM, comm=number, id=id, peer=rank, elements=ranks, a=1)


def calls(number: int, *counts: int) -> list[ProfilerRecord]:
    return [
        record(COLL_CALL, comm=number, id=100 * number + at, elements=count, time=at)
        for at, count in enumerate(counts, 1)
    ]


def merge_files(*files: tuple[list[ProfilerRecord], dict[str, str]]):
    collector = Collector("profiler")
    for number, (records, facts) in enumerate(files):
        profiler.add(
            ProcessFile(f"host-{number}", facts, 0, 0, 22809, 5, 0, 0, 0, records=records),
            f"host-{number}",
            collector,
        )
    return pattern(collector)


def test_process_with_several_gpus_is_several_ranks():
    first = [
        record for rank in range(4) for record in (comm(rank, id=7, rank=rank), *calls(rank, 8, 16))
    ]
    merged = merge_files((first, {}))
    assert [(recorded.ranks, recorded.members) for recorded in merged.comms] == [(4, [0, 1, 2, 3])]
    assert [(row.count, row.calls) for row in merged.rows] == [(8, 1), (16, 1)]
    assert merged.header.ranks == [0, 1, 2, 3]
    assert merged.header.notes == []


def test_two_processes_with_two_gpus_are_one_communicator():
    files = [
        (
            [
                recorded
                for rank in (2 * at, 2 * at + 1)
                for recorded in (comm(rank, id=7, rank=rank), *calls(rank, 8))
            ],
            {"RANK": str(at)},
        )
        for at in (0, 1)
    ]
    merged = merge_files(*files)
    assert [recorded.members for recorded in merged.comms] == [[0, 1, 2, 3]]
    assert [row.calls for row in merged.rows] == [1]


def test_communicator_that_is_made_again_is_another():
    records = [
        comm(0, id=7, rank=0, ranks=1),
        *calls(0, 8),
        comm(1, id=7, rank=0, ranks=1),
        *calls(1, 8),
    ]
    merged = merge_files((records, {"RANK": "0"}))
    assert len(merged.comms) == 2
    assert [row.comm for row in merged.rows] == [0, 1]


def test_process_without_calls_is_named_with_the_usual_reason():
    only_comm = ([comm(0, id=7, rank=0, ranks=1)], {"RANK": "0", "WORLD_SIZE": "1"})
    two_calls = ([comm(0, id=7, rank=0), *calls(0, 8, 16)], {"RANK": "1"})
    notes = merge_files(only_comm, two_calls).header.notes
    assert notes == ["rank 0: NCCL reported no call, as of a communicator with one rank"]


def test_root_or_peer_that_is_no_rank_is_unknown():
    ranks = (-1, 1, 2)
    records = [comm(0, id=7, rank=0, ranks=2)]
    records += [record(COLL_CALL, comm=0, id=at, function=0, peer=at) for at in ranks]
    records += [record(P2P_CALL, comm=0, id=at, function=RECV, peer=at) for at in range(3, 6)]
    records += [record(P2P, comm=0, id=at + 4, function=RECV, peer=at) for at in ranks]
    merged = merge_files((records, {"RANK": "0"}))
    assert [(row.function, row.root, row.peer) for row in merged.rows] == [
        ("broadcast", None, None),
        ("broadcast", 1, None),
        ("recv", None, None),
        ("recv", None, 1),
    ]
    assert ReplayPlan(merged).skipped["recv of an unknown rank or peer"] == 2


class Process:
    """A process that counts how often it is compared."""

    compared = 0
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        Process.compared += 1
        return self is other


def test_streams_and_groups_are_numbered_without_a_search():
    first, second = Process(), Process()
    collector = Collector("profiler")
    for process in (first, second):
        for number in range(1, 201):
            collector.add_call(
                process, ObservedCall(process, "send", 8, stream=-number, group=number)
            )
    Process.compared = 0
    merged = pattern(collector)
    assert [call.stream for call in merged.calls].count(199) == 2, "each process has its own"
    assert {call.group for call in merged.calls} == set(range(400)), "of all processes"
    assert Process.compared < 10 * len(merged.calls)


def test_calls_before_nccl_2_28_have_their_tasks_alone():
    merged = merge_files(
        ([comm(0, id=7, rank=0, ranks=1), record(COLL, elements=64, time=3)], {"RANK": "0"})
    )
    assert [(row.function, row.bytes, row.dtype) for row in merged.rows] == [
        ("all_reduce", 256, "float")
    ]


def test_pattern_says_by_which_clock_each_call_is_timed():
    records = [comm(0, id=7, rank=0, ranks=1), *calls(0, 8, 16, 32)]
    records += [record(COLL, id=number, b=number, channels=1) for number in (1, 2)]
    records += [
        record(TIMED, id=1, a=10_000, b=13_000, flags=1),
        record(TIMED, id=2, a=900_000, b=902_000),
    ]
    merged = merge_files((records, {"RANK": "0", "mode": "timed", "no_events": "no libcuda"}))
    assert [(call.clock, call.gpu_us) for call in merged.calls] == [
        ("events", 3.0),
        ("kernel", 2.0),
        (None, None),
    ]
    assert [call.gpu_at_us for call in merged.calls[:2]] == [0.0, 0.001], "each clock has its zero"
    assert merged.header.clocks == {"events": 1, "kernel": 1}
    assert "timed by CUDA events around the launch, 1 call; NCCL's kernel events, 1 call\n" in foot(
        merged
    )
    assert any(
        "because CUDA events cannot be used: no libcuda" in note for note in merged.header.notes
    )


def test_calls_without_a_time_are_counted_with_the_reasons():
    collector = Collector("profiler")
    process_file = ProcessFile(
        "host-0",
        {"RANK": "0", "mode": "timed"},
        0,
        0,
        23203,
        7,
        0,
        untimed=1,
        errno=0,
        no_event=3,
        failed=2,
        records=[comm(0, id=7, rank=0, ranks=1), *calls(0, *range(1, 8))],
    )
    profiler.add(process_file, "host-0", collector)
    assert collector.header.notes == [
        "rank 0: 7 calls without a time: 3 launches while all CUDA events were in use,"
        " 2 CUDA events failed, 1 kernel whose end was reported too late or not at all"
    ]
