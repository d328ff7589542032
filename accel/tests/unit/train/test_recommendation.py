"""The predicted step of an exchange, and which one a plan recommends, given how far figures vary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw_accel.methods import APART, LEAST_FIRST
from busbw_accel.train import recommendation
from busbw_accel.train.plan_types import (
    LOSSES,
    Bucket,
    BucketLayout,
    CheckRound,
    ExchangeRound,
    LayoutRound,
    LocalExchange,
    MeasuredExchange,
    Plan,
    PlanRun,
)
from busbw_accel.train.recommendation import recommended

M = 1 << 20
Times = st.floats(0, 10)


def planned(*exchanges: MeasuredExchange, target: float = 0.95) -> Plan:
    """A step of 100 ms without communication, whose three buckets are ready after 40, 60 and 90
    ms, measured in a single round.
    """
    return Plan(
        target,
        0.1,
        0.1,
        [Bucket(100 * M, 0.04), Bucket(10 * M, 0.06), Bucket(M, 0.09)],
        list(exchanges),
    )


def taking(method: str, loss: int, *bucket_s: float, transport: str = "as-is") -> MeasuredExchange:
    return MeasuredExchange(transport, method, loss, list(bucket_s))


def in_rounds(
    *exchanges: MeasuredExchange,
    target: float = 0.95,
    alone_s: tuple[float, ...] = (0.1, 0.1, 0.1, 0.1),
) -> Plan:
    """A step of 100 ms without communication, whose one bucket is ready at its end."""
    bucket = Bucket(M, 0.1)
    layouts = [
        BucketLayout(size, [LayoutRound(0.1, [bucket]) for _ in alone_s]) for size in (25.0, 4.0)
    ]
    return Plan(
        target,
        alone_s[0],
        0.1,
        [bucket],
        list(exchanges),
        [PlanRun("as-is", list(alone_s), layouts)],
    )


def exposing(
    method: str, loss: int, *exposed_s: float, bucket_mb: float | None = None
) -> MeasuredExchange:
    rounds = [ExchangeRound([seconds]) for seconds in exposed_s]
    return MeasuredExchange(
        "as-is", method, loss, [sum(exposed_s) / len(exposed_s)], bucket_mb=bucket_mb, rounds=rounds
    )


@pytest.mark.parametrize(
    ("bucket_s", "exposed"),
    [
        ((0.01, 0.01, 0.0), 0.0),
        ((0.01, 0.01, 0.005), 0.005),  # the last exchange is never hidden
        ((0.02, 0.04, 0.001), 0.011),  # the second is still running when the third is ready
        ((0.2, 0.1, 0.01), 0.26),  # the link is always busy: it begins at 40 ms and ends after 310
    ],
)
def test_exposed_time_is_counted_after_the_last_bucket_is_ready(
    bucket_s: tuple[float, ...], exposed: float
) -> None:
    plan = planned(taking("none", 0, *bucket_s))
    assert plan.exposed_s(plan.exchanges[0]) == pytest.approx(exposed)
    assert plan.step_s(plan.exchanges[0]) == pytest.approx(0.1 + exposed)
    assert plan.efficiency(plan.exchanges[0]) == pytest.approx(0.1 / (0.1 + exposed))


def test_computation_of_an_exchange_delays_the_next_bucket() -> None:
    exchange = taking("topk", 4, 0.01, 0.01, 0.001)
    exchange.busy_s = [0.008, 0.004, 0.5]
    assert planned(exchange).exposed_s(exchange) == pytest.approx(0.008 + 0.004 + 0.001), (
        "the last one's own computation does not count"
    )


@given(st.lists(st.tuples(Times, Times), min_size=1, max_size=9))
def test_exposed_time_is_bounded_by_the_exchange_times(pairs: list[tuple[float, float]]) -> None:
    ready = sorted(low for low, _ in pairs)
    took = [high for _, high in pairs]
    plan = Plan(0.95, 1.0, 1.0, [Bucket(1, when) for when in ready], [taking("none", 0, *took)])
    exposed = plan.exposed_s(plan.exchanges[0])
    assert took[-1] - 1e-9 <= exposed <= sum(took) + 1e-9
    slower = plan.exposed_s(taking("none", 0, *(2 * seconds for seconds in took)))
    assert slower >= exposed - 1e-9


def test_each_round_gives_its_own_prediction() -> None:
    buckets = [Bucket(100 * M, 0.05), Bucket(M, 0.09)]
    later = [Bucket(100 * M, 0.06), Bucket(M, 0.1)]
    small = BucketLayout(4.0, [LayoutRound(0.12, [Bucket(M, 0.1)])])
    run = PlanRun(
        "as-is",
        [0.1, 0.11, 0.12],
        [BucketLayout(25.0, [LayoutRound(0.1, buckets), LayoutRound(0.11, later)]), small],
    )
    exchange = MeasuredExchange(
        "as-is",
        "none",
        0,
        [0.0, 0.0],
        rounds=[ExchangeRound([0.05, 0.02]), ExchangeRound([0.05, 0.04], [0.01, 0.0])],
    )
    plan = Plan(0.95, 0.1, 0.1, buckets, [exchange], [run])
    assert plan.predictions(exchange) == [
        pytest.approx((0.1, 0.1, 0.03)),
        pytest.approx((0.11, 0.11, 0.05)),
    ]
    assert plan.exposed_s(exchange) == pytest.approx(0.04)
    assert plan.shares(exchange) == pytest.approx([0.1 / 0.13, 0.11 / 0.16])
    other = MeasuredExchange(
        "as-is", "none", 0, [0.03], bucket_mb=4.0, rounds=[ExchangeRound([0.03])]
    )
    assert plan.predictions(other) == [pytest.approx((0.1, 0.12, 0.03))]
    other.checks = [CheckRound(0.1, 0.2), CheckRound(0.1, 0.4)]
    assert plan.shares(other) == [0.5, 0.25], "a training run has its own rounds of each rank alone"


def test_the_least_lossy_method_reaching_the_target_is_chosen() -> None:
    none, bf16 = taking("none", 0, 0.2, 0.1, 0.01), taking("bf16", 1, 0.1, 0.05, 0.005)
    int8, topk = taking("int8", 2, 0.02, 0.01, 0.004), taking("topk", 4, 0.001, 0.001, 0.001)
    assert recommended(planned(topk, int8, bf16, none)) is int8
    assert recommended(planned(topk, int8, bf16, none, target=0.98)) is topk
    tuned = taking("none", 0, 0.01, 0.01, 0.002, transport="sockets")
    assert recommended(planned(none, bf16, int8, topk, tuned)) is tuned, "a setting loses nothing"


def test_a_measured_training_step_replaces_the_prediction() -> None:
    int8, low, topk = (
        taking("int8", 2, 0.02, 0.01, 0.004),
        taking("powersgd", 3, 0.001, 0.001, 0.002),
        taking("topk", 4, 0.001, 0.001, 0.001),
    )
    plan = planned(int8, low, topk)
    int8.checked_s = 0.11
    assert recommended(plan) is low
    low.checked_s = 0.104
    assert recommended(plan) is low
    low.checked_s = topk.checked_s = 0.12
    assert recommended(plan) is int8, "none reaches the target, and this is fastest"


def test_the_fastest_method_is_chosen_if_none_reaches_the_target() -> None:
    slow, fast, alike = (
        taking("bf16", 1, 0.2, 0.1, 0.1),
        taking("topk", 4, 0.05, 0.05, 0.05),
        taking("int8", 2, 0.05, 0.05, 0.051),
    )
    assert recommended(planned(slow, fast, alike, target=1.0)) is alike
    assert recommended(planned()) is None


def test_losses_have_fixed_numbers_and_their_own_order() -> None:
    assert [LOSSES[number].split()[:3] for number in (0, 2, 3, 4)] == [
        ["nothing"],
        ["rounded", "to", "8"],
        ["a", "low", "rank"],
        ["the", "largest", "now,"],
    ], "result files contain the numbers"
    assert sorted(LEAST_FIRST) == list(range(len(LOSSES)))
    int4, low = taking("int4", 5, 0.001, 0.001, 0.001), taking("powersgd", 3, 0.001, 0.001, 0.001)
    assert recommended(planned(low, int4)) is int4


def test_a_method_not_measured_to_be_faster_is_not_recommended() -> None:
    large, small = (
        exposing("none", 0, 0.4, 0.5, 0.45, 0.42),
        exposing("none", 0, 0.42, 0.36, 0.5, 0.39, bucket_mb=4.0),
    )
    assert recommended(in_rounds(large, small)) is large, "no difference is seen: the first listed"
    surely = exposing("none", 0, 0.35, 0.44, 0.40, 0.37, bucket_mb=4.0)
    assert recommended(in_rounds(large, surely)) is surely, (
        "in every round a tenth faster, though the rounds themselves vary as much"
    )
    single = exposing("none", 0, 0.4), exposing("none", 0, 0.36, bucket_mb=4.0)
    assert recommended(in_rounds(*single)) is single[1], "one round has no interval"


def test_buckets_come_before_lossy_methods() -> None:
    """Plain DDP with gpt-small over 1 Gbit/s: 579 ms a step, with buckets of 4 MB 523, and bf16
    515.
    """
    large, small = (
        exposing("none", 0, 0.479, 0.48, 0.478, 0.479),
        exposing("none", 0, 0.423, 0.424, 0.422, 0.423, bucket_mb=4.0),
    )
    bf16, faster = (
        exposing("bf16", 1, 0.415, 0.416, 0.414, 0.415),
        exposing("topk", 4, 0.2, 0.2, 0.21, 0.2),
    )
    assert recommended(in_rounds(large, small, bf16)) is small, "2 % are not worth a loss"
    assert recommended(in_rounds(large, small, bf16, faster)) is faster
    assert recommended(in_rounds(large, small, bf16, target=0.19)) is small


def test_what_loses_more_must_be_faster_than_all_that_lose_less() -> None:
    """powersgd is as fast as top-k, and bf16 as powersgd, as far as these rounds show."""
    bf16, powersgd, topk = (
        exposing("bf16", 1, 0.51, 0.50, 0.52, 0.51),
        exposing("powersgd", 3, 0.50, 0.42, 0.49, 0.52),
        exposing("topk", 4, 0.42, 0.43, 0.44, 0.43),
    )
    assert recommended(in_rounds(powersgd, topk)) is powersgd
    assert recommended(in_rounds(bf16, topk)) is topk
    assert recommended(in_rounds(bf16, powersgd, topk)) is bf16


def test_a_lossy_method_must_be_measured_to_be_faster() -> None:
    none, int8 = (
        exposing("none", 0, 0.01, 0.004, 0.03, 0.0),
        exposing("int8", 2, 0.0, 0.0, 0.001, 0.0),
    )
    plan = in_rounds(none, int8, target=0.995)
    assert plan.reaches(int8) and not plan.reaches(none)
    assert recommended(plan) is none
    assert (
        recommendation.no_slower(plan, none) is int8
        and recommendation.no_slower(plan, int8) is None
    )


def test_a_step_alone_that_is_longer_than_one_under_ddp_allows_no_recommendation() -> None:
    none = exposing("none", 0, 0.01, 0.01, 0.01, 0.01)
    plan = in_rounds(none, alone_s=(1.6, 1.5, 1.7, 1.6))
    stills = ["a step on a perfect network", "a step on a perfect network with 4 MB buckets"]
    assert [
        (contradiction.figure.name, contradiction.limit.name)
        for contradiction in recommendation.contradictions(plan)
    ] == [("a step alone", still_s) for still_s in stills]
    assert recommended(plan) is None
    noisy = in_rounds(none, alone_s=(1.6, 0.1, 0.1, 0.1))
    assert recommendation.contradictions(noisy) == [], (
        "one round of four: what is printed has an interval that says so"
    )
    assert recommendation.unclear(noisy) is none and recommended(noisy) is None, (
        "between a third and six times alone"
    )
    assert recommendation.unclear(in_rounds(none, alone_s=(0.1, 0.09, 0.11, 0.1))) is None
    assert (
        recommendation.contradictions(in_rounds(none, alone_s=(0.1015, 0.1015, 0.1015, 0.1015)))
        == []
    ), "by less than 2 %"


def test_a_training_run_can_contradict_too() -> None:
    none = exposing("none", 0, 0.01, 0.01, 0.01, 0.01)
    none.checks, none.checked_s = [CheckRound(0.3, 0.12), CheckRound(0.31, 0.12)], 0.12
    (contradiction,) = recommendation.contradictions(in_rounds(none, alone_s=(0.1, 0.1)))
    assert (contradiction.figure.name, contradiction.limit.name) == (
        "a step alone",
        "a step with none",
    )
    old = planned(taking("none", 0, 0.01, 0.01, 0.001))
    old.alone_s = 0.12
    assert recommendation.contradictions(old) == [], (
        "a file without rounds has no interval: a quarter is needed"
    )
    old.alone_s = 1.6
    assert len(recommendation.contradictions(old)) == 1


def apart(every: int, change_s: float, *, fragments: int = 1, delay: int = 0) -> MeasuredExchange:
    """Local steps, whose exchange takes a tenth of its time from backward."""
    return MeasuredExchange(
        "as-is",
        f"int8+every={every}",
        APART,
        [0.0],
        rounds=[ExchangeRound([0.0], [0.0], change_s, change_s / 10)],
        local=LocalExchange(every, fragments, delay),
    )


def test_local_steps_wait_for_their_exchange_once_in_every_steps() -> None:
    exchanges = {
        0.1: apart(10, 1.0),
        0.02: apart(30, 0.6),
        # each of three fragments takes 0.4 s, 0.2 s of it while two steps of 0.1 s go on
        0.06: apart(10, 1.2, fragments=3, delay=2),
        # hidden by six steps; its computation is not
        0.012: apart(10, 1.2, fragments=3, delay=6),
    }
    plan = in_rounds(*exchanges.values(), alone_s=(0.1,))
    for exposed_s, exchange in exchanges.items():
        assert plan.exposed_s(exchange) == pytest.approx(exposed_s)


def test_local_steps_are_the_last_choice_and_the_fewest_that_reach_the_target() -> None:
    none, topk = exposing("none", 0, 0.5), exposing("topk", 4, 0.2)
    variants = [apart(every, 0.5) for every in (10, 30, 100, 300)]  # 67, 86, 95.2 and 98 %
    assert recommended(in_rounds(none, topk, *variants, alone_s=(0.1,))) is variants[2]
    fast = exposing("topk", 4, 0.001)
    assert recommended(in_rounds(none, fast, *variants, alone_s=(0.1,))) is fast
