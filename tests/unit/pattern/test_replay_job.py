"""From what ranks timed to the rows of a replay."""

import pytest

from busbw.core.errors import NoMeasurement
from busbw.core.pattern import Comm, Header, Pattern
from busbw.measure.kernel_times import TimedKernel
from busbw.pattern.collector import Arguments, CallTally
from busbw.pattern.replay.job import CPU, GPU, ReplayTimes, _by_operation, _conclude, _idle_notes
from busbw.pattern.replay.plan import ReplayPlan
from busbw.pattern.replay.timing import check_members
from busbw.pattern.replay.types import Replay, ReplayedRow, ReplaySpec


def pattern() -> Pattern:
    tally = CallTally(Header(), ordered=True)
    for _ in range(2):
        tally.add_comm(2, members=[0, 1])
    tally.add_calls(Arguments(0, "send", 8, rank=0, peer=1))
    tally.add_calls(Arguments(0, "recv", 8, rank=1, peer=0))
    for _ in range(2):
        tally.add_calls(Arguments(1, "all_reduce", 40, 10, "float"))
        tally.add_calls(Arguments(1, "broadcast", 40, 10, "float", root=0))
    return tally.to_pattern()


def kernel(time_us: float) -> TimedKernel:
    return TimedKernel(time_us, "Ring", "LL", 2)


def blank(plan: ReplayPlan) -> Replay:
    return Replay(ReplaySpec(pattern="p"), rows=[ReplayedRow(row, 2) for row in plan.pattern.rows])


def test_ranks_whose_groups_were_not_recorded_are_named():
    comms = [Comm(0, 8, members=list(range(8))), Comm(1, 2, "tp", members=[0, 1])]
    (note,) = _idle_notes(Pattern(Header(world=8, ranks=[0, 1]), comms))
    assert note.startswith("not recorded: 6 ranks (2-7)")
    assert _idle_notes(Pattern(Header(world=8, ranks=list(range(8))), comms)) == []


def test_kernels_are_those_of_operations_after_the_warm_up():
    plan = ReplayPlan(pattern())
    messages, rank_messages = (
        [kernel(1), kernel(2), kernel(3)],
        [kernel(10), kernel(20), *map(kernel, range(30, 38))],
    )
    kernels_of = _by_operation(plan.operations, [messages, rank_messages], {0: 0, 1: 0}, repeats=2)
    assert {
        number: [duration.time_us for duration in kernels] for number, kernels in kernels_of.items()
    } == {0: [2, 3], 1: [30, 34], 2: [31, 35], 3: [32, 36], 4: [33, 37]}


def test_communicator_with_other_calls_than_were_made_is_left_out():
    plan = ReplayPlan(pattern())
    assert _by_operation(plan.operations, [[kernel(1)], [kernel(1)]], {0: 0, 1: 0}, repeats=1) == {}


def test_rank_outside_all_exchanges_of_a_communicator_does_not_shift_the_next():
    tally = CallTally(Header(), ordered=True)
    tally.add_comm(3)
    tally.add_comm(3)
    tally.add_calls(Arguments(0, "send", 8, rank=0, peer=1))
    tally.add_calls(Arguments(0, "recv", 8, rank=1, peer=0))
    tally.add_calls(Arguments(1, "all_reduce", 40, 10, "float"))
    plan = ReplayPlan(tally.to_pattern())
    kernels_of = _by_operation(plan.operations, [[kernel(5), kernel(7)]], {0: 2, 1: 2}, repeats=1)
    assert {number: kernels[0].time_us for number, kernels in kernels_of.items()} == {1: 7}


def test_shortest_time_of_a_rank_is_that_of_the_operation():
    plan = ReplayPlan(pattern())
    replay = blank(plan)
    ranks = [
        ReplayTimes([0.5], [dict.fromkeys(range(5), 9.0)], {}),
        ReplayTimes([0.6], [dict.fromkeys(range(5), 4.0)], {}),
    ]
    _conclude(replay, plan, ranks, GPU)
    by_function = {row.row.function: row for row in replay.rows}
    assert (by_function["all_reduce"].times.median, by_function["all_reduce"].skew_us) == (4, 5)
    assert by_function["broadcast"].times.median == 4
    assert replay.wall_s == [0.6]
    assert by_function["recv"].times is None


def test_replay_of_one_ranks_record_is_averaged_over_that_rank():
    tally = CallTally(Header(world=4, ranks=[0]), ordered=True)
    all_ranks, half = (
        tally.add_comm(4, members=range(4), read=1),
        tally.add_comm(2, members=(0, 1), read=1),
    )
    tally.add_calls(Arguments(all_ranks, "all_reduce", 40, 10, "float"))
    tally.add_calls(Arguments(half, "all_reduce", 40, 10, "float"))
    tally.add_calls(Arguments(half, "send", 8, rank=0, peer=1), group=0)
    tally.add_calls(Arguments(half, "recv", 8, rank=1, peer=0), group=1)
    plan = ReplayPlan(tally.to_pattern())
    replay = blank(plan)
    _conclude(
        replay,
        plan,
        [ReplayTimes([0.5], [dict.fromkeys(range(3), 9.0)], {}) for _ in range(4)],
        GPU,
    )
    assert [row.weight for row in replay.rows if row.times] == [1, 1, 1]


def test_call_that_may_return_early_on_cpus_takes_the_longest():
    plan = ReplayPlan(pattern())
    replay = blank(plan)
    _conclude(
        replay,
        plan,
        [ReplayTimes([1], [dict.fromkeys(range(5), duration)], {}) for duration in (9.0, 4.0)],
        CPU,
    )
    assert {row.row.function: row.times.median for row in replay.rows if row.times} == {
        "send": 9,
        "all_reduce": 4,
        "broadcast": 9,
    }


def test_a_choice_that_differs_from_the_record_is_detected():
    row = pattern().rows[2]
    row.algorithm, row.protocol = "Tree", "LL"
    assert ReplayedRow(row, 2, algorithm="Ring", protocol="LL").ran_another
    assert not ReplayedRow(row, 2, algorithm="Tree", protocol="LL").ran_another
    assert not ReplayedRow(row, 2).ran_another


def test_ranks_without_a_part_and_unknown_members_are_named():
    check_members([Comm(0, 4)], 4)
    with pytest.raises(NoMeasurement, match="rank 1 of 3 is in no communicator"):
        check_members([Comm(0, 2, members=[0, 2])], 3)
    with pytest.raises(
        NoMeasurement, match="the members of communicator 1, 2 of 4 ranks, are unknown"
    ):
        check_members([Comm(0, 4), Comm(1, 2)], 4)
    with pytest.raises(NoMeasurement, match="the pattern has rank 7"):
        check_members([Comm(0, 2), Comm(1, 2, members=[0, 7])], 2)
