"""The predicted time of a step, and the recommended method."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core import transports
from busbw.core.errors import UsageError
from busbw.core.planning import LEAST_FIRST, LOSSES, Bucket, Exchange, Plan

M = 1 << 20
Times = st.floats(0, 10)


def planned(*exchanges: Exchange, target: float = 0.95) -> Plan:
    """A step of 100 ms without communication, whose three buckets are ready after 40, 60 and 90 ms."""
    return Plan(target, 0.1, 0.1, [Bucket(100 * M, 0.04), Bucket(10 * M, 0.06), Bucket(M, 0.09)], list(exchanges))


def taking(method: str, loss: int, *bucket_s: float, transport: str = "as-is") -> Exchange:
    return Exchange(transport, method, loss, list(bucket_s))


@pytest.mark.parametrize(
    ("bucket_s", "exposed"),
    [
        ((0.01, 0.01, 0.0), 0.0),
        ((0.01, 0.01, 0.005), 0.005),  # the last exchange is never hidden
        ((0.02, 0.04, 0.001), 0.011),  # the second is still running when the third is ready
        ((0.2, 0.1, 0.01), 0.26),  # the link is always busy: it begins at 40 ms and ends after 310
    ],
)
def test_exposed_time_is_counted_after_the_last_bucket_is_ready(bucket_s: tuple[float, ...], exposed: float) -> None:
    plan = planned(taking("none", 0, *bucket_s))
    assert plan.exposed_s(plan.exchanges[0]) == pytest.approx(exposed)
    assert plan.step_s(plan.exchanges[0]) == pytest.approx(0.1 + exposed)
    assert plan.efficiency(plan.exchanges[0]) == pytest.approx(0.1 / (0.1 + exposed))


def test_computation_of_an_exchange_delays_the_next_bucket() -> None:
    exchange = taking("topk", 4, 0.01, 0.01, 0.001)
    exchange.busy_s = [0.008, 0.004, 0.5]
    assert planned(exchange).exposed_s(exchange) == pytest.approx(0.008 + 0.004 + 0.001), "the last one's own computation does not count"


@given(st.lists(st.tuples(Times, Times), min_size=1, max_size=9))
def test_exposed_time_is_bounded_by_the_exchange_times(pairs: list[tuple[float, float]]) -> None:
    ready = sorted(one for one, _ in pairs)
    took = [one for _, one in pairs]
    plan = Plan(0.95, 1.0, 1.0, [Bucket(1, when) for when in ready], [taking("none", 0, *took)])
    exposed = plan.exposed_s(plan.exchanges[0])
    assert took[-1] - 1e-9 <= exposed <= sum(took) + 1e-9
    slower = plan.exposed_s(taking("none", 0, *(2 * one for one in took)))
    assert slower >= exposed - 1e-9


def test_the_least_lossy_method_reaching_the_target_is_chosen() -> None:
    none, bf16 = taking("none", 0, 0.2, 0.1, 0.01), taking("bf16", 1, 0.1, 0.05, 0.005)
    int8, topk = taking("int8", 2, 0.02, 0.01, 0.004), taking("topk", 4, 0.001, 0.001, 0.001)
    assert planned(topk, int8, bf16, none).recommended() is int8
    assert planned(topk, int8, bf16, none, target=0.98).recommended() is topk
    tuned = taking("none", 0, 0.01, 0.01, 0.002, transport="sockets")
    assert planned(none, bf16, int8, topk, tuned).recommended() is tuned, "a setting loses nothing"


def test_a_measured_training_step_replaces_the_prediction() -> None:
    int8, low, topk = (
        taking("int8", 2, 0.02, 0.01, 0.004),
        taking("powersgd", 3, 0.001, 0.001, 0.002),
        taking("topk", 4, 0.001, 0.001, 0.001),
    )
    plan = planned(int8, low, topk)
    int8.checked_s = 0.11
    assert plan.recommended() is low
    low.checked_s = 0.104
    assert plan.recommended() is low
    low.checked_s = topk.checked_s = 0.12
    assert plan.recommended() is int8, "none reaches the target, and this is fastest"


def test_the_fastest_method_is_chosen_if_none_reaches_the_target() -> None:
    slow, fast, alike = taking("bf16", 1, 0.2, 0.1, 0.1), taking("topk", 4, 0.05, 0.05, 0.05), taking("int8", 2, 0.05, 0.05, 0.051)
    assert planned(slow, fast, alike, target=1.0).recommended() is alike
    assert planned().recommended() is None


def test_losses_have_fixed_numbers_and_their_own_order() -> None:
    assert [LOSSES[number].split()[:3] for number in (0, 2, 3, 4)] == [
        ["nothing"],
        ["rounded", "to", "8"],
        ["a", "low", "rank"],
        ["the", "largest", "now,"],
    ], "result files contain the numbers"
    assert sorted(LEAST_FIRST) == list(range(len(LOSSES)))
    int4, low = taking("int4", 5, 0.001, 0.001, 0.001), taking("powersgd", 3, 0.001, 0.001, 0.001)
    assert planned(low, int4).recommended() is int4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("as-is,udp", "'udp' in 'as-is,udp' is not a transport"),
        ("tree,tree", "'tree,tree' contains tree twice"),
        (" ,", "no transport given"),
    ],
)
def test_invalid_transport_lists_are_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        transports.parse(text)


def test_a_transport_has_its_shell_command() -> None:
    as_is, tree, busbw = transports.parse("as-is, tree,busbw")
    assert (as_is.shell, tree.shell, busbw.shell) == ("", "export NCCL_ALGO=allreduce:tree", 'eval "$(busbw env net)"')
