"""The predicted time of a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw_accel.train import transports
from busbw_accel.train.plan_types import (
    Bucket,
    BucketLayout,
    CheckRound,
    ExchangeRound,
    LayoutRound,
    MeasuredExchange,
    Plan,
    PlanRun,
)

M = 1 << 20
Times = st.floats(0, 10)


def planned(*exchanges: MeasuredExchange, target: float = 0.95) -> Plan:
    """A step of 100 ms without communication, whose three buckets are ready after 40, 60 and 90
    ms.
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("as-is,udp", "'udp' in 'as-is,udp' is not a transport"),
        ("tree,tree", "'tree,tree' contains tree twice"),
        (" ,", "no transport given"),
    ],
)
def test_invalid_transport_lists_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        transports.parse(text)
    assert caught.value.message == message


def test_a_transport_has_its_shell_command() -> None:
    as_is, tree, busbw = transports.parse("as-is, tree,busbw")
    assert (as_is.shell, tree.shell, busbw.shell) == (
        "",
        "export NCCL_ALGO=allreduce:tree",
        'eval "$(busbw run --net busbw --print-env)"',
    )
