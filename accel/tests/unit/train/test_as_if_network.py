"""A plan as if the network were faster or slower."""

import msgspec
import pytest

from busbw.core.errors import UsageError
from busbw_accel.train.as_if_network import AsIfNetwork, parse, plan_as_if, reached_rate
from busbw_accel.train.by_bandwidth import ranges
from busbw_accel.train.plan_types import (
    Bucket,
    ExchangeRound,
    LocalExchange,
    MeasuredExchange,
    Plan,
)
from busbw_accel.train.recommendation import recommended


def measured(method: str, counted: float | None, *bucket_s: float) -> MeasuredExchange:
    return MeasuredExchange("as-is", method, 0, list(bucket_s), [], counted, checked_s=0.5)


def planned(*exchanges: MeasuredExchange) -> Plan:
    """Two buckets, of three quarters and one quarter of the bytes."""
    return Plan(0.9, 0.1, 0.1, [Bucket(300, 0.05), Bucket(100, 0.1)], list(exchanges))


@pytest.mark.parametrize(
    ("network", "dense_s", "small_s"),
    [
        # none sends 400 bytes in 0.4 s, the most of all: 1000 bytes per second
        ("1x", [0.3, 0.1], [0.16, 0.14]),
        ("2x", [0.15, 0.05], [0.115, 0.125]),  # of int8's times, 0.09 and 0.03 are of its 120 bytes
        ("0.5x", [0.6, 0.2], [0.25, 0.17]),
        ("16kbit/s", [0.15, 0.05], [0.115, 0.125]),
    ],
)
def test_the_part_of_the_bytes_is_scaled(network, dense_s, small_s):
    plan = planned(measured("none", 400, 0.3, 0.1), measured("int8", 120, 0.16, 0.14))
    assert reached_rate(plan, "as-is") == pytest.approx(1000)
    dense, small = plan_as_if(plan, parse(network)).exchanges
    assert dense.bucket_s == pytest.approx(dense_s)
    assert small.bucket_s == pytest.approx(small_s)
    assert dense.checked_s is None
    assert plan.exchanges[0].bucket_s == [0.3, 0.1]


def test_rounds_are_scaled_each_with_its_own_buckets(planned_in_rounds):
    plan = planned_in_rounds.plan
    whole, four, half = plan_as_if(plan, parse("2x")).exchanges
    assert [exchanged.busy_s for exchanged in four.rounds] == [[0.001] * 2, [0.001] * 2]
    for before, after in zip(plan.exchanges, (whole, four, half), strict=True):
        for was, now in zip(before.rounds, after.rounds, strict=True):
            assert all(w / 2 <= n < w for w, n in zip(was.bucket_s, now.bucket_s, strict=True))
    assert plan.exchanges[1].checks


def test_the_bytes_of_a_whole_exchange_of_parameters_are_scaled():
    local = MeasuredExchange(
        "as-is",
        "int8+every=10",
        6,
        [0.0, 0.0],
        counted=20,  # a step: 200 in the exchange, which take 0.2 s at the rate of none
        rounds=[ExchangeRound([0.0, 0.0], change_s=0.5)],
        local=LocalExchange(10),
    )
    plan = planned(measured("none", 400, 0.3, 0.1), local)
    assert reached_rate(plan, "as-is") == pytest.approx(1000)
    (faster,) = plan_as_if(plan, parse("2x")).exchanges[1].rounds
    assert faster.change_s == pytest.approx(0.4)


def test_bytes_that_are_not_counted_are_left_out():
    plan = planned(measured("none", 400, 0.3, 0.1), measured("torch-powersgd", None, 0.1, 0.1))
    assert [item.method for item in plan_as_if(plan, parse("2x")).exchanges] == ["none"]
    assert plan_as_if(planned(measured("none", 0.0, 0.3, 0.1)), parse("2x")).exchanges == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2", "--network 2: a factor needs an x, a rate its unit"),
        ("0x", "--network 0x: must be above 0"),
        ("-1x", "--network -1x: it is not a rate"),
        ("25Gb/s", "--network 25Gb/s: bits or bytes?"),
        ("0Gbit/s", "--network 0Gbit/s: it is not a rate above 0"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert refused.value.message == message


def test_each_range_of_bandwidths_has_its_method():
    """At 80 Mbit/s, none and int8 take 0.4 s and 0.2 s for a step of 0.1 s."""
    none = measured("none", 4e6, 0.3, 0.1)
    small = msgspec.structs.replace(measured("int8", 2e6, 0.15, 0.05), loss=2)
    plan = planned(none, small)
    found = ranges(plan)
    assert [span.method for span in found] == ["", "int8", "none"]
    assert [before.high for before in found[:-1]] == [after.low for after in found[1:]]
    assert (found[0].low, found[-1].high) == (1e8 / 8, pytest.approx(4e11 / 8))
    for span in found[1:]:
        above = recommended(plan_as_if(plan, AsIfNetwork("", rate=1.11 * span.low)))
        assert above.method == span.method
    assert ranges(planned(measured("none", 0.0, 0.3, 0.1))) == []
