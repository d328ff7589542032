"""The calls in a process's file, joined from its records."""

import struct

import pytest

from busbw.core.errors import UsageError
from busbw.measure.profiler_calls import read_calls
from busbw.measure.profiler_file import (
    CALL_TIMING,
    COLL,
    COLL_CALL,
    COMM,
    DEFERRED,
    P2P,
    P2P_CALL,
    TIMED,
    UNKNOWN,
    ProcessFile,
    ProfilerRecord,
    parse,
)

BROADCAST, ALL_GATHER, ALL_REDUCE, SEND, RECV, ALLTOALL = 0, 2, 4, 6, 7, 8
FLOAT = 7
BY_EVENTS, AROUND_CALL = 1, 2  # flags of a time


def file(*records: ProfilerRecord) -> ProcessFile:
    return ProcessFile("host-1.capture", {}, 0, 0, 22809, 5, 0, 0, 0, records=list(records))


def record(kind: int, function: int = ALL_REDUCE, **fields: int) -> ProfilerRecord:
    empty = dict.fromkeys(ProfilerRecord._fields, 0) | {
        "algorithm": UNKNOWN,
        "protocol": UNKNOWN,
        "dtype": FLOAT,
    }
    return ProfilerRecord(**(empty | {"kind": kind, "function": function} | fields))


def called(
    number: int, gpu: tuple[int, int] | None, *, group: int = 0, function: int = ALL_REDUCE
) -> list[ProfilerRecord]:
    """A call with its task and time."""
    kinds = (P2P_CALL, P2P) if function in (SEND, RECV) else (COLL_CALL, COLL)
    records = [
        record(kinds[0], function, id=number, b=group or number, time=number, elements=number),
        record(
            kinds[1],
            function,
            id=number,
            b=number,
            algorithm=1,
            protocol=2,
            channels=4,
            peer=3,
            time=number,
            elements=number,
        ),
    ]
    return records + ([record(TIMED, id=number, a=gpu[0], b=gpu[1])] if gpu else [])


def times(*parts: list[ProfilerRecord]) -> list[tuple[int, int] | None]:
    return [
        call.gpu_ns for call in read_calls(file(*(call for part in parts for call in part))).calls
    ]


def test_call_has_the_values_of_its_task_and_time():
    (call,), unknown, _ = read_calls(file(*called(5, (100, 350))))
    assert (
        call.function,
        call.count,
        call.dtype,
        call.algorithm,
        call.protocol,
        call.channels,
    ) == ("all_reduce", 5, "float", "Ring", "Simple", 4)
    assert (call.gpu_us, call.at_ns, unknown) == (0.25, 5, 0)


def test_peer_of_a_send_is_that_of_its_task():
    (call,), *_ = read_calls(file(*called(5, None, function=SEND)))
    assert (call.function, call.peer, call.algorithm) == ("send", 3, None)


def test_alltoall_spans_its_sends_and_receives():
    parts = [record(P2P, RECV if at % 2 else SEND, id=1, b=at, channels=2) for at in range(1, 5)]
    spans = [record(TIMED, id=at, a=100 * at, b=100 * at + 50) for at in range(1, 5)]
    (call,), *_ = read_calls(file(record(COLL_CALL, ALLTOALL, id=1, elements=8), *parts, *spans))
    assert (call.function, call.count, call.gpu_ns) == ("alltoall", 8, (100, 450))


def test_kernels_of_one_communicator_follow_each_other():
    assert times(called(1, (0, 10)), called(2, (10, 20)), called(3, (25, 30))) == [
        (0, 10),
        (10, 20),
        (25, 30),
    ]


def test_times_of_later_kernels_are_dropped():
    assert times(called(1, (0, 10)), called(2, (10, 99)), called(3, (25, 30))) == [
        (0, 10),
        None,
        (25, 30),
    ]
    assert times(called(1, (50, 10)), called(2, (10, 20))) == [None, (10, 20)]


def test_calls_of_one_group_may_share_a_kernel():
    shared = [called(1, (0, 10), group=7), called(2, (2, 12), group=7)]
    assert times(*shared) == [(0, 10), (2, 12)]


def with_self(nccl: int) -> list[tuple[int, int] | None]:
    """Times around a send to rank 3, which is the own rank on communicator 0; another
    communicator has a call too.
    """
    comms = [record(COMM, comm=number, peer=3, elements=4) for number in (0, 1)]
    other = [call._replace(comm=1) for call in called(5, (50, 60))]
    records = [
        *called(1, (0, 10)),
        *called(2, (20, 30), function=SEND),
        *called(4, (40, 50)),
        *other,
    ]
    process_file = file(*comms, *records)
    process_file.nccl = nccl
    return [call.gpu_ns for call in read_calls(process_file).calls]


def test_no_time_follows_a_send_to_the_own_rank():
    assert with_self(22809) == [(0, 10), None, None, (50, 60)]
    assert with_self(23102) == [(0, 10), (20, 30), (40, 50), (50, 60)]


def test_broadcast_without_a_task_shifts_the_times_that_follow():
    quiet = record(COLL_CALL, BROADCAST, id=2, time=2, elements=9)
    process_file = file(*called(1, (0, 10)), quiet, *called(3, (20, 30)))
    assert [call.gpu_ns for call in read_calls(process_file).calls] == [(0, 10), None, (20, 30)]
    process_file.nccl = 23007
    assert read_calls(process_file)[0][2].gpu_ns is None
    assert read_calls(process_file).shifted == 1


def by_events(*spans: tuple[int, int], flags: int = BY_EVENTS) -> list[ProfilerRecord]:
    return [
        record(TIMED, id=100 + at, a=start, b=end, flags=flags)
        for at, (start, end) in enumerate(spans)
    ]


def test_times_by_events_are_kept_where_kernel_times_are_not():
    first, quiet, last = (
        [record(COLL_CALL, function, id=at, b=at, time=at, elements=9) for at in [number]]
        for number, function in ((1, ALL_REDUCE), (2, BROADCAST), (3, ALL_REDUCE))
    )
    tasks = [record(COLL, id=1, b=100, channels=2), record(COLL, id=3, b=101, channels=2)]
    timing = record(CALL_TIMING, id=2, b=102)
    spans = by_events((0, 10), (5, 30))
    around = [record(TIMED, id=102, a=10, b=20, flags=AROUND_CALL)]
    process_file = file(*first, *quiet, *last, *tasks, timing, *spans, *around)
    process_file.nccl = 23203
    calls, _, shifted = read_calls(process_file)
    assert [(call.gpu_ns, call.clock) for call in calls] == [
        ((0, 10), "events"),
        ((10, 20), "call"),
        ((5, 30), "events"),
    ]
    assert shifted == 0
    process_file.records.append(record(DEFERRED))
    assert [call.clock for call in read_calls(process_file).calls] == ["events", None, "events"]


@pytest.mark.parametrize(
    ("function", "spans"), [(ALL_REDUCE, [(0, 20), (20, 80)]), (SEND, [(0, 80), (0, 80)])]
)
def test_collectives_of_one_launch_divide_its_time_by_their_bytes(function, spans):
    kinds = (P2P_CALL, P2P) if function == SEND else (COLL_CALL, COLL)
    calls = [
        record(kinds[0], function, id=number, b=7, time=number, elements=elements)
        for number, elements in ((1, 1000), (2, 3000))
    ]
    tasks = [record(kinds[1], function, id=number, b=100, channels=2) for number in (1, 2)]
    read = read_calls(file(*calls, *tasks, *by_events((0, 80)))).calls
    assert [call.gpu_ns for call in read] == spans


def test_graph_makes_a_call_of_every_replay_without_the_times_of_other_calls():
    first = record(COLL_CALL, id=1, flags=1, time=1, elements=8)
    replays = [record(COLL, id=1, b=100, time=10 * at, algorithm=1, protocol=0) for at in (3, 2)]
    made = file(first, *replays, record(TIMED, id=100, a=5, b=90), *called(2, None))
    calls, *_ = read_calls(made)
    assert [(call.at_ns, call.captured) for call in calls] == [(2, False), (20, True), (30, True)]
    assert {call.gpu_ns for call in calls} == {None}
    calls, *_ = read_calls(made, with_replays=False)
    assert [(call.at_ns, call.captured) for call in calls] == [(1, True), (2, False)]
    assert (calls[0].algorithm, calls[0].gpu_ns) == ("Ring", None)


def test_bytes_of_a_gather_without_its_call_have_no_type():
    calls, *_ = read_calls(
        file(record(COLL, ALL_GATHER, elements=64, dtype=0), record(COLL, ALL_REDUCE, elements=64))
    )
    assert [(call.count, call.dtype) for call in calls] == [(64, None), (64, "float")]


def test_unknown_functions_are_counted():
    calls, unknown, _ = read_calls(file(record(COLL_CALL, 200, id=1), record(COLL, 255)))
    assert (calls, unknown) == ([], 2)


@pytest.mark.parametrize("data", [b"", b"BUSBWCAP", b"x" * 5000, b"BUSBWCAP" + b"\xff" * 5000])
def test_other_files_are_refused(data: bytes):
    with pytest.raises(UsageError, match=r"one\.capture: "):
        parse(data, "one.capture")


@pytest.mark.parametrize(("tickets", "lost"), [((1, 2, 3), 0), ((1, 2, 4), 1), ((), 2)])
def test_records_that_the_header_does_not_count_yet_are_no_loss(
    tickets: tuple[int, ...], lost: int
):
    """The process was killed after it wrote the records, and before it wrote their number, 2."""
    header = struct.pack("<8s14Q", b"BUSBWCAP", 1, 0, 2, *[0] * 11)
    records = [struct.pack("<Q8BIi5Q", *record(COMM, ticket=ticket)) for ticket in tickets]
    assert parse(header.ljust(4096, b"\0") + b"".join(records), "one.capture").dropped == lost
