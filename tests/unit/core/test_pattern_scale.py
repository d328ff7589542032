"""A pattern for another number of ranks, and the step that it repeats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.pattern import Header, Pattern, algbw_bytes
from busbw.core.pattern_scale import period, ranks_of, scaled
from busbw.core.pattern_tally import Arguments, Tally


def pattern(*rows: Arguments, ranks: int = 8) -> Pattern:
    tally = Tally(Header(), ordered=True)
    tally.comm(ranks, members=range(ranks))
    for row in rows:
        tally.add(row)
    return tally.pattern()


GATHER = Arguments(0, "all_gather", algbw_bytes("all_gather", 1000, "half", 8), 1000, "half")
REDUCE = Arguments(0, "reduce", 400, 100, "float", root=7)


def test_same_ranks_change_nothing():
    recorded = pattern(GATHER, REDUCE)
    assert scaled(recorded, 8, "none") is recorded


def test_other_ranks_need_a_rule():
    with pytest.raises(UsageError, match="recorded on 8 ranks, and 4 are to replay it"):
        scaled(pattern(GATHER), 4, "none")


def test_count_keeps_each_ranks_elements():
    gather, reduce = scaled(pattern(GATHER, REDUCE), 4, "count").rows
    assert (gather.count, gather.bytes) == (1000, 1000 * 2 * 4)
    assert (reduce.count, reduce.bytes, reduce.root) == (100, 400, 0)


def test_bytes_keeps_what_algbw_divides():
    gather, reduce = scaled(pattern(GATHER, REDUCE), 4, "bytes").rows
    assert (gather.count, gather.bytes) == (2000, GATHER.bytes)
    assert (reduce.count, reduce.bytes) == (100, 400)


@pytest.mark.parametrize("rule", ["bytes", "count"])
def test_parts_and_single_ranks_are_refused(rule):
    tally = Tally(Header(), ordered=True)
    tally.comm(8, members=range(8))
    tally.comm(2, members=[1, 5])
    with pytest.raises(UsageError, match="communicator 1 has 2 of 8 ranks"):
        scaled(tally.pattern(), 4, rule)
    with pytest.raises(UsageError, match="send to single ranks"):
        scaled(pattern(Arguments(0, "send", 8, rank=1, peer=2)), 4, rule)


def test_ranks_of_counts_members_and_sizes():
    tally = Tally(Header(), ordered=False)
    tally.comm(2, members=[3, 9])
    assert ranks_of(tally.pattern()) == 10
    tally.comm(16)
    assert ranks_of(tally.pattern()) == 16


steps = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@given(steps, st.integers(4, 9), st.lists(st.integers(10, 12), max_size=10))
def test_period_divides_the_repeated_step(step, times, start):
    repeated = step * times
    found = period([*start[: len(repeated) - 1], *repeated])
    assert 0 < found <= len(step)
    assert len(step) % found == 0


@pytest.mark.parametrize("rows", [[], [1], [1, 2, 3, 4], [1, 2, 1, 2]])
def test_too_few_repetitions_have_no_period(rows):
    assert period(rows) == 0
