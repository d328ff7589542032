"""From a pattern to the operations that replay it."""

import pytest

from busbw.core.pattern import Header, algbw_bytes
from busbw.pattern.collector import Arguments, CallTally
from busbw.pattern.replay.plan import UNORDERED_CALLS, UNORDERED_WARM_UP, ReplayPlan, warm_up

SUM = Arguments(0, "all_reduce", 40, 10, "float")


def tally(
    *, ordered: bool = True, members: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),)
) -> CallTally:
    tally_ = CallTally(Header(), ordered=ordered)
    for ranks in members:
        tally_.add_comm(len(ranks), members=ranks)
    return tally_


def test_calls_keep_their_order_and_equal_ones_are_shared():
    tally_ = tally()
    gather = Arguments(0, "all_gather", algbw_bytes("all_gather", 5, "int8", 4), 5, "int8")
    for arguments in (SUM, gather, SUM):
        tally_.add_calls(arguments)
    plan = ReplayPlan(tally_.to_pattern())
    first, second, third = plan.operations
    assert [operation.call.collective.name for operation in plan.operations] == [
        "all_reduce",
        "all_gather",
        "all_reduce",
    ]
    assert first.call is third.call
    assert (second.call.send, second.call.recv, second.call.layout.count) == (5, 20, 5)
    assert len(warm_up(plan.operations)) == 2
    assert plan.buffer_bytes(0) == 40


@pytest.mark.parametrize(
    ("function", "count", "send", "recv"),
    [
        ("reduce_scatter", 7, 28, 7),
        ("alltoall", 7, 28, 28),
        ("scatter", 7, 28, 7),
        ("gather", 7, 7, 28),
        ("broadcast", 7, 7, 7),
    ],
)
def test_buffers_follow_nccls_count(function, count, send, recv):
    tally_ = tally()
    tally_.add_calls(Arguments(0, function, algbw_bytes(function, count, "half", 4), count, "half"))
    (operation,) = ReplayPlan(tally_.to_pattern()).operations
    assert (operation.call.layout.count, operation.call.send, operation.call.recv) == (
        count,
        send,
        recv,
    )


def test_bytes_serve_where_the_type_is_unknown():
    tally_ = tally()
    tally_.add_calls(Arguments(0, "all_gather", 4000))
    (operation,) = ReplayPlan(tally_.to_pattern()).operations
    assert (operation.call.dtype.name, operation.call.layout.count, operation.call.recv) == (
        "uint8",
        1000,
        4000,
    )


def messages(tally_: CallTally, *listed: tuple[str, int, int, int | None]) -> list:
    """Calls of 8 bytes times the sender's number and one; gives the matrices of the exchanges."""
    for function, rank, peer, group in listed:
        sender = rank if function == "send" else peer
        tally_.add_calls(
            Arguments(0, function, 8 * (sender + 1), rank=rank, peer=peer), group=group
        )
    plan = ReplayPlan(tally_.to_pattern())
    assert not plan.skipped
    return [operation.call.layout.matrix for operation in plan.operations]


def exchange_of(*sizes: tuple[int, int, int], ranks: int = 4) -> tuple:
    return tuple(
        tuple(
            sum(size for sender, receiver, size in sizes if (sender, receiver) == (a, b))
            for b in range(ranks)
        )
        for a in range(ranks)
    )


def test_messages_of_one_group_are_one_exchange():
    ring = [("send", rank, (rank + 1) % 4, rank) for rank in range(4)] + [
        ("recv", rank, (rank - 1) % 4, rank) for rank in range(4)
    ]
    assert messages(tally(), *ring) == [exchange_of((0, 1, 8), (1, 2, 16), (2, 3, 24), (3, 0, 32))]


def test_sender_that_runs_ahead_does_not_join_messages():
    ahead = [
        ("send", 0, 1, 0),
        ("send", 0, 1, 1),
        ("recv", 1, 0, 2),
        ("send", 0, 1, 3),
        ("recv", 1, 0, 4),
        ("recv", 1, 0, 5),
    ]
    assert messages(tally(), *ahead) == [exchange_of((0, 1, 8))] * 3


def test_messages_without_known_groups_follow_each_other():
    pairs = [("send", 0, 3, None), ("send", 1, 2, None), ("recv", 2, 1, None), ("recv", 3, 0, None)]
    assert messages(tally(), *pairs) == [exchange_of((1, 2, 16)), exchange_of((0, 3, 8))]


def test_equal_exchanges_are_one_call():
    tally_ = tally()
    messages(tally_, *[("send", 0, 1, None), ("recv", 1, 0, None)] * 5)
    operations = ReplayPlan(tally_.to_pattern()).operations
    assert len(operations) == 5 and len({id(operation.call) for operation in operations}) == 1
    assert [operations[0].moves(rank) for rank in range(4)] == [True, True, False, False]


def test_messages_are_between_ascending_members():
    tally_ = tally(members=((6, 2, 4),))
    assert messages(tally_, ("send", 0, 1, None), ("recv", 1, 0, None)) == [
        exchange_of((2, 0, 8), ranks=3)
    ]


def test_row_that_lacks_its_ranks_is_counted():
    tally_ = tally(ordered=False)
    tally_.add_calls(Arguments(0, "send", 8), 3)
    tally_.add_calls(SUM)
    assert ReplayPlan(tally_.to_pattern()).skipped == {"send of an unknown rank or peer": 3}
    empty = CallTally(Header(), ordered=False)
    empty.add_comm(0)
    empty.add_calls(SUM)
    assert ReplayPlan(empty.to_pattern()).skipped == {"all_reduce of unknown size or parts": 1}


def test_unmatched_send_is_counted_and_left_out():
    tally_ = tally()
    tally_.add_calls(SUM)
    tally_.add_calls(Arguments(0, "send", 8, rank=0, peer=1))
    plan = ReplayPlan(tally_.to_pattern())
    assert len(plan.operations) == 1
    assert plan.skipped == {"a send or receive without its counterpart": 1}


def test_uneven_exchange_without_its_parts_is_left_out():
    tally_ = tally()
    tally_.add_calls(Arguments(0, "alltoallv", 800))
    tally_.add_calls(SUM)
    assert ReplayPlan(tally_.to_pattern()).skipped == {"alltoallv of unknown size or parts": 1}


def test_root_is_counted_among_ascending_members():
    tally_ = tally(members=((6, 2, 4),))
    tally_.add_calls(Arguments(0, "broadcast", 8, 8, "int8", root=0))
    (operation,) = ReplayPlan(tally_.to_pattern()).operations
    assert operation.call.root == 2


def test_calls_that_overlapped_on_the_gpu_may_overlap_in_the_replay():
    tally_ = tally(members=((0, 1), (0, 1), (0, 1)))
    other, third = (Arguments(comm, "all_reduce", 40, 10, "float") for comm in (1, 2))
    tally_.add_calls(SUM, gpu_at_us=0.0, gpu_us=10.0, stream=0)
    tally_.add_calls(other, gpu_at_us=5.0, gpu_us=20.0, stream=1)
    tally_.add_calls(third, gpu_at_us=12.0, gpu_us=2.0, stream=1)
    assert [operation.after for operation in ReplayPlan(tally_.to_pattern()).operations] == [
        (),
        (),
        (0,),
    ]


def test_streams_decide_where_the_gpus_clock_is_unknown():
    tally_ = tally(members=((0, 1), (0, 1)))
    other = Arguments(1, "all_reduce", 40, 10, "float")
    for arguments, stream in ((SUM, 0), (other, 1), (SUM, 1), (other, None)):
        tally_.add_calls(arguments, stream=stream)
    assert [operation.after for operation in ReplayPlan(tally_.to_pattern()).operations] == [
        (),
        (),
        (1,),
        (0,),
    ]


def test_rows_without_an_order_are_repeated():
    tally_ = tally(ordered=False)
    tally_.add_calls(SUM, 1_000_000)
    tally_.add_calls(Arguments(0, "send", 64, rank=0, peer=1), 3)
    tally_.add_calls(Arguments(0, "recv", 64, rank=1, peer=0), 3)
    operations = ReplayPlan(tally_.to_pattern()).operations
    assert len(operations) == 2 * (UNORDERED_WARM_UP + UNORDERED_CALLS)
    assert sum(operation.counted for operation in operations) == 2 * UNORDERED_CALLS
