"""A pattern for another number of ranks, and the step that it repeats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw.core.pattern import Header, Pattern, PatternRow, Times, algbw_bytes
from busbw.core.pattern_weights import RepeatedStep, ranks_of, scaled, step
from busbw.pattern.collector import Arguments, CallTally
from busbw.pattern.replay.types import ReplayedRow


def pattern(*rows: Arguments, ranks: int = 8) -> Pattern:
    tally = CallTally(Header(), ordered=True)
    tally.add_comm(ranks, members=range(ranks))
    for row in rows:
        tally.add_calls(row)
    return tally.to_pattern()


GATHER = Arguments(0, "all_gather", algbw_bytes("all_gather", 1000, "half", 8), 1000, "half")
REDUCE = Arguments(0, "reduce", 400, 100, "float", root=7)


def test_same_ranks_change_nothing():
    recorded = pattern(GATHER, REDUCE)
    assert scaled(recorded, 8, "none") is recorded


def test_other_ranks_need_a_rule():
    with pytest.raises(UsageError, match="the pattern is of 8 ranks, not 4"):
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
    tally = CallTally(Header(), ordered=True)
    tally.add_comm(8, members=range(8))
    tally.add_comm(2, members=[1, 5])
    with pytest.raises(UsageError, match="communicator 1 has 2 of 8 ranks"):
        scaled(tally.to_pattern(), 4, rule)
    with pytest.raises(UsageError, match="send to single ranks"):
        scaled(pattern(Arguments(0, "send", 8, rank=1, peer=2)), 4, rule)


def test_ranks_of_counts_members_and_sizes():
    tally = CallTally(Header(), ordered=False)
    tally.add_comm(2, members=[3, 9])
    assert ranks_of(tally.to_pattern()) == 10
    tally.add_comm(16)
    assert ranks_of(tally.to_pattern()) == 16


steps = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@given(steps, st.integers(4, 9), st.lists(st.integers(10, 12), max_size=10))
def test_a_step_and_its_repeats_are_counted(calls, times, start):
    repeated = calls * times
    first = start[: len(repeated) - 1]
    counted = step([*first, *repeated])
    assert 0 < counted.calls <= len(calls)
    assert len(calls) % counted.calls == 0
    assert counted.calls * counted.times == len(repeated), (
        "none of the calls at the start, which are others"
    )


def test_calls_at_the_start_are_not_steps():
    assert step([5, 6, 7, 5, 6, 7] + [1, 2] * 9) == RepeatedStep(2, 9)
    assert step([2] + [1, 2] * 9) == RepeatedStep(2, 9), "the end of an earlier step is none"


@pytest.mark.parametrize("rows", [[], [1], [1, 2, 3, 4], [1, 2, 1, 2]])
def test_too_few_repetitions_have_no_step(rows):
    assert step(rows) == RepeatedStep()


def test_a_steps_time_is_that_of_its_own_calls() -> None:
    """Nine steps of a call of 10 us and one of 2 us, after six calls of 500 us."""
    rows = [PatternRow(number, 0, "all_reduce", 8, calls) for number, calls in enumerate((9, 9, 6))]
    times = [Times(3, 3 * step_us, step_us, step_us, step_us) for step_us in (10.0, 2.0, 500.0)]
    scales = [
        ReplayedRow(row, 2, times=time, step_calls=calls)
        for row, time, calls in zip(rows, times, (1, 1, 0), strict=True)
    ]
    assert [row.step_s for row in scales] == pytest.approx([10e-6, 2e-6, 0.0])


def test_no_share_becomes_less_than_an_element():
    """DDP gathers a few values of each rank at its start."""
    values = Arguments(0, "all_gather", algbw_bytes("all_gather", 1, "int64", 2), 1, "int64")
    (scaled_values,) = scaled(pattern(values, ranks=2), 128, "bytes").rows
    assert (scaled_values.count, scaled_values.bytes) == (1, 8 * 128)
    nothing = Arguments(0, "all_gather", 0, 0, "int64")
    assert scaled(pattern(nothing, ranks=2), 128, "bytes").rows[0].bytes == 0
