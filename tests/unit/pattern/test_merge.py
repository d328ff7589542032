"""Several ranks' calls become one order: a collective is one call of all its members."""

from hypothesis import given
from hypothesis import strategies as st

from busbw.pattern.merge import ObservedCall, join, merge


def call(comm, function="all_reduce", size=8, **fields):
    return ObservedCall(comm, function, size, **fields)


def order(merged):
    return [(merged_call.call.comm, merged_call.call.function) for merged_call in merged.calls]


def test_collective_is_one_call_of_all_its_members():
    merged = merge([[call("world"), call("a"), call("world")], [call("world"), call("world")]])
    assert order(merged) == [("world", "all_reduce"), ("a", "all_reduce"), ("world", "all_reduce")]
    assert [merged_call.queues for merged_call in merged.calls] == [[0, 1], [0], [0, 1]]
    assert merged.forced == merged.mismatched == 0


def test_shortest_duration_is_the_operation_and_the_rest_is_skew():
    merged = merge(
        [[call("w", gpu_us=30.0, at_us=5.0)], [call("w", gpu_us=12.0, at_us=23.0)], [call("w")]]
    )
    (merged_call,) = merged.calls
    assert (
        merged_call.call.gpu_us,
        merged_call.skew_us,
        merged_call.call.at_us,
        merged_call.call.cpu_us,
    ) == (12.0, 18.0, 5.0, None)


def test_ranks_that_disagree_are_merged_by_time_and_counted():
    merged = merge(
        [[call("a", at_us=1.0), call("b", at_us=2.0)], [call("b", at_us=2.5), call("a", at_us=3.0)]]
    )
    assert order(merged) == [("a", "all_reduce"), ("b", "all_reduce")]
    assert merged.forced == 1


def test_send_and_recv_are_calls_of_one_rank():
    merged = merge([[call("w", "send", peer=1)], [call("w", "recv", peer=0)]])
    assert [(merged_call.call.function, merged_call.queues) for merged_call in merged.calls] == [
        ("send", [0]),
        ("recv", [1]),
    ]


def test_numbers_of_the_source_align_a_rank_whose_beginning_is_lost():
    calls = [call("w", seq=number, size=number) for number in (1, 2, 3)]
    assert [merged_call.queues for merged_call in merge([calls, calls[1:]]).calls] == [
        [0],
        [0, 1],
        [0, 1],
    ]


def test_calls_without_numbers_are_joined_by_function_and_size():
    merged = merge([[call("w", "all_gather"), call("w", size=8)], [call("w", size=8)]])
    assert [merged_call.queues for merged_call in merged.calls] == [[0], [0, 1]]


def test_values_that_one_rank_lacks_come_from_another():
    merged_call, agreed = join([call("w"), call("w", algorithm="Ring", predicted_us=3.0)])
    assert agreed and (merged_call.call.algorithm, merged_call.call.predicted_us) == ("Ring", 3.0)


def test_a_call_that_differs_contributes_nothing():
    merged_call, agreed = join(
        [call("w", "all_gather", seq=1), call("w", "all_reduce", op="sum", seq=1)]
    )
    assert not agreed and (merged_call.call.function, merged_call.call.op) == ("all_gather", None)


def test_unequal_parts_of_an_all_to_all_are_no_disagreement():
    merged_call, agreed = join([call("w", "alltoall", 12, count=3), call("w", "alltoallv", 24)])
    assert agreed and (
        merged_call.call.function,
        merged_call.call.bytes,
        merged_call.call.count,
    ) == ("alltoallv", 24, None)


MEMBERS = {"world": (0, 1, 2, 3), "left": (0, 1), "right": (2, 3), "odd": (1, 3)}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(MEMBERS)), st.sampled_from(["all_reduce", "all_gather"])),
        max_size=40,
    ),
    st.booleans(),
)
def test_consistent_ranks_keep_their_order(order, numbered):
    queues = [
        [
            call(comm, function, seq=number if numbered else None)
            for number, (comm, function) in enumerate(order)
            if rank in MEMBERS[comm]
        ]
        for rank in range(4)
    ]
    merged = merge(queues)
    assert len(merged.calls) == len(order) and merged.forced == 0
    for rank, queue in enumerate(queues):
        calls_of_rank = [
            (merged_call.call.comm, merged_call.call.function)
            for merged_call in merged.calls
            if rank in merged_call.queues
        ]
        assert calls_of_rank == [(call.comm, call.function) for call in queue]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12), max_size=4
    )
)
def test_no_order_of_the_ranks_stops_the_merge(queues):
    merged = merge([[call(comm, seq=number) for comm, number in queue] for queue in queues])
    assert sum(len(merged_call.queues) for merged_call in merged.calls) == sum(map(len, queues))
