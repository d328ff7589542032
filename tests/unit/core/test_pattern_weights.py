"""How much calls on parts of the job, and sends in groups, add to the average time of a rank."""

from hypothesis import given
from hypothesis import strategies as st

from busbw.core.pattern import Header
from busbw.core.pattern_weights import parts, weights, world_of
from busbw.pattern.collector import Arguments, CallTally


@given(st.integers(2, 6), st.integers(1, 3))
def test_alltoall_of_sends_weighs_as_one_of_all_ranks(ranks: int, turns: int):
    tally = CallTally(Header(world=ranks), ordered=True)
    comm = tally.add_comm(ranks)
    for turn in range(turns):
        for rank in range(ranks):
            for peer in range(ranks):
                for function in ("send", "recv"):
                    tally.add_calls(Arguments(comm, function, 8, rank=rank, peer=peer), group=turn)
    pattern = tally.to_pattern()
    total = sum(
        row.calls * weight for row, weight in zip(pattern.rows, weights(pattern), strict=True)
    )
    assert abs(total - turns) < 1e-9


def test_parts_of_the_job_weigh_their_part():
    tally = CallTally(Header(world=8), ordered=False)
    world, half, unknown = tally.add_comm(8), tally.add_comm(4), tally.add_comm(0)
    for comm in (world, half, unknown):
        tally.add_calls(Arguments(comm, "all_reduce", 8), 5)
    tally.add_calls(Arguments(half, "send", 8, rank=0, peer=1), 5)
    assert weights(tally.to_pattern()) == [1, 0.5, 1, 0.125]
    assert world_of(tally.to_pattern()) == 8


def test_sends_of_unknown_groups_count_alone():
    tally = CallTally(Header(world=2), ordered=True)
    comm = tally.add_comm(2)
    tally.add_calls(Arguments(comm, "send", 8, rank=0, peer=1))
    tally.add_calls(Arguments(comm, "send", 8, rank=0, peer=1), group=3)
    tally.add_calls(Arguments(comm, "send", 64, rank=0, peer=1), group=3)
    assert weights(tally.to_pattern()) == [(1 + 1 / 2) / 2 / 2, 1 / 2 / 2]


def test_ranks_that_were_read_are_weighed():
    """One rank of 64: its calls are made by all that was read, whatever the size of their
    communicators.
    """
    tally = CallTally(Header(world=64, ranks=[5]), ordered=False)
    for comm in (
        tally.add_comm(8, members=range(8)),
        tally.add_comm(8, members=range(5, 64, 8)),
        tally.add_comm(8, read=1),
        tally.add_comm(0, read=1),
    ):
        tally.add_calls(Arguments(comm, "all_reduce", 8), 5)
    tally.add_calls(Arguments(0, "send", 8, rank=5, peer=1), 5)
    assert parts(tally.to_pattern()) == [1, 1, 1, 1, 1]
    assert weights(tally.to_pattern()) == [1, 1, 1, 1, 1]


def test_a_record_with_ranks_but_no_members_counts_as_whole():
    """As records were written before communicators stated how many of their ranks were read."""
    tally = CallTally(Header(world=8, ranks=list(range(8))), ordered=False)
    tally.add_calls(Arguments(tally.add_comm(4), "all_reduce", 8), 5)
    assert weights(tally.to_pattern()) == [0.5]
