"""Files of the profiler plugin as patterns: processes that drive several GPUs, and communicators
that are made again.
"""

from busbw.measure.profiler_file import COLL, COLL_CALL, COMM, UNKNOWN, ProcessFile, Record
from busbw.pattern.collector import Collector
from busbw.pattern.pattern_builder import pattern
from busbw.pattern.readers import profiler

ALL_REDUCE, FLOAT = 4, 7


def record(kind: int, **fields: int) -> Record:
    empty = dict.fromkeys(Record._fields, 0) | {
        "algorithm": UNKNOWN,
        "protocol": UNKNOWN,
        "dtype": FLOAT,
        "function": ALL_REDUCE,
    }
    return Record(**(empty | {"kind": kind} | fields))


def comm(number: int, *, id: int, rank: int, ranks: int = 4) -> Record:
    return record(COMM, comm=number, id=id, peer=rank, elements=ranks, a=1)


def calls(number: int, *counts: int) -> list[Record]:
    return [
        record(COLL_CALL, comm=number, id=100 * number + at, elements=count, time=at)
        for at, count in enumerate(counts, 1)
    ]


def merge_files(*files: tuple[list[Record], dict[str, str]]):
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


def test_calls_before_nccl_2_28_have_their_tasks_alone():
    merged = merge_files(
        ([comm(0, id=7, rank=0, ranks=1), record(COLL, elements=64, time=3)], {"RANK": "0"})
    )
    assert [(row.function, row.bytes, row.dtype) for row in merged.rows] == [
        ("all_reduce", 256, "float")
    ]
