"""Increases per second between two samples: wraps, resets, saturation, devices that come and go,
and values that were not read again.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.link_samples import CounterGroup, HostSample
from busbw.model.rates import RESET, SATURATED, increases, rates

U32 = 1 << 32
KEY = ("mlx5_0", "hw_counters")


def sample(at_s: float, identity: int = 1, **values: int) -> HostSample:
    return HostSample(at_s, (), {KEY: CounterGroup(at_s, identity, values)})


def between(before: dict[str, int], after: dict[str, int], seconds: float = 2.0):
    return rates(sample(5.0, **before), sample(5.0 + seconds, **after))


@pytest.mark.parametrize(
    ("name", "before", "after", "per_s", "unknown"),
    [
        ("packet_seq_err", 10, 30, 10.0, None),
        ("packet_seq_err", U32 - 4, 6, 5.0, None),  # 32 bits: it wrapped
        ("packet_seq_err", 1000, 4, None, RESET),  # fell by less than a wrap explains
        ("np_cnp_sent", U32 - 4, 6, None, RESET),  # 64 bits: no wrap
        ("port_xmit_data", 100, 150, 100.0, None),  # units of four bytes
        ("link_downed", 255, 255, None, SATURATED),
        ("link_downed", 254, 255, 0.5, None),
        ("nvlink_tx", 0, 2, 1024.0, None),  # KiB
        ("outbound_pci_stalled_wr", 80, 15, 15, None),  # a level
    ],
)
def test_increase_per_second(name, before, after, per_s, unknown):
    result = between({name: before}, {name: after})
    assert result.per_s[KEY].get(name) == per_s
    assert result.unknown.get(KEY, {}).get(name) == unknown


@given(st.integers(0, U32 - 1), st.integers(0, U32 // 2 - 1), st.floats(0.1, 10))
def test_rate_is_true_over_a_wrap(before, by, seconds):
    result = between({"out_of_buffer": before}, {"out_of_buffer": (before + by) % U32}, seconds)
    assert result.per_s[KEY]["out_of_buffer"] == pytest.approx(by / seconds)


def test_a_device_that_returns_has_no_rates_at_first():
    rates_again = rates(
        sample(1.0, identity=1, packet_seq_err=7),
        sample(2.0, identity=2, packet_seq_err=90, state=4),
    )
    assert rates_again.per_s[KEY] == {"state": 4} and not rates_again.unknown


def test_a_new_device_has_no_rates_at_first():
    result = rates(HostSample(1.0, (), {}), sample(2.0, packet_seq_err=90))
    assert result.per_s[KEY] == {}


def test_a_new_counter_of_a_known_device_has_no_rate_at_first():
    assert between({}, {"packet_seq_err": 3}).per_s[KEY] == {}


def test_a_group_that_was_not_read_again_keeps_its_rates():
    first, second = sample(1.0, packet_seq_err=0), sample(2.0, packet_seq_err=50)
    first_rates = rates(first, second)
    repeated = HostSample(2.1, (), second.groups)
    assert rates(second, repeated, first_rates).per_s[KEY] == {"packet_seq_err": 50.0}
    assert rates(second, repeated).per_s[KEY] == {}, "without rates before, none are known"


def test_levels_of_a_group_that_was_not_read_again_are_known():
    first = sample(1.0, num_of_qp=22, packet_seq_err=0)
    assert rates(first, HostSample(1.1, (), first.groups)).per_s[KEY] == {"num_of_qp": 22}


def test_rate_after_a_repeated_group_covers_the_whole_time():
    first, last = sample(1.0, packet_seq_err=0), sample(3.0, packet_seq_err=50)
    repeated = HostSample(2.0, (), first.groups)
    assert rates(repeated, last, rates(first, repeated)).per_s[KEY] == {"packet_seq_err": 25.0}


def test_values_of_one_subject_are_joined_over_its_sources():
    first = {
        ("eth0", "dev"): CounterGroup(1.0, 1, {"tx_bytes": 0}),
        ("eth0", "ethtool"): CounterGroup(1.0, 1, {"tx_bytes_phy": 0}),
    }
    second = {
        ("eth0", "dev"): CounterGroup(2.0, 1, {"tx_bytes": 10}),
        ("eth0", "ethtool"): CounterGroup(2.0, 1, {"tx_bytes_phy": 14}),
    }
    assert rates(HostSample(1.0, (), first), HostSample(2.0, (), second)).of("eth0") == {
        "tx_bytes": 10.0,
        "tx_bytes_phy": 14.0,
    }


def test_whole_increases_are_not_divided():
    result = increases(sample(5.0, packet_seq_err=10), sample(9.0, packet_seq_err=30))
    assert result.per_s[KEY] == {"packet_seq_err": 20.0}


def test_a_group_that_was_not_read_again_has_no_increase():
    first = sample(1.0, packet_seq_err=0)
    assert increases(first, HostSample(2.0, (), first.groups)).per_s == {}


def test_whole_increases_of_a_reset_or_another_device_are_unknown():
    assert increases(sample(1.0, packet_seq_err=50), sample(2.0, packet_seq_err=4)).unknown == {
        KEY: {"packet_seq_err": RESET}
    }
    assert increases(
        sample(1.0, identity=1, packet_seq_err=5), sample(2.0, identity=2, packet_seq_err=9)
    ).per_s == {KEY: {}}
