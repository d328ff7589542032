"""Exported counters never fall, and have every increase that is known."""

from hypothesis import given
from hypothesis import strategies as st

from busbw.core.link_samples import CounterGroup, HostSample
from busbw.watch.totals import Totals

U32 = 1 << 32
KEY = ("mlx5_0", "hw_counters")


def total(*values: tuple[int, int], name: str = "packet_seq_err") -> list[int]:
    """Totals after each of some (identity, value)."""
    totals, sums = Totals(), []
    for at_s, (identity, value) in enumerate(values):
        sample = HostSample(at_s, (), {KEY: CounterGroup(at_s, identity, {name: value})})
        totals.take(sample)
        sums.append(totals.of(sample)[KEY][name])
    return sums


def test_totals_start_with_the_counters_value():
    assert total((1, 70), (1, 75)) == [70, 75]


def test_units_are_those_of_the_table():
    assert total((1, 10), (1, 15), name="port_xmit_data") == [40, 60]


def test_a_wrapped_counter_keeps_counting():
    assert total((1, U32 - 5), (1, 3)) == [U32 - 5, U32 + 3]


def test_a_reset_adds_the_count_since_then():
    assert total((1, 1000), (1, 8), (1, 10)) == [1000, 1008, 1010]


def test_a_device_that_returns_adds_its_whole_value():
    assert total((1, 1000), (2, 2000)) == [1000, 3000]


def test_a_saturated_counter_stays():
    assert total((1, 254), (1, 255), (1, 255), name="link_downed") == [254, 255, 255]


def test_levels_are_as_they_are():
    assert total((1, 80), (1, 10), name="outbound_pci_stalled_wr") == [80, 10]


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, U32 - 1)), min_size=2, max_size=20))
def test_totals_never_fall(values):
    sums = total(*values)
    assert sums == sorted(sums)


def test_a_group_that_was_not_read_again_adds_nothing():
    totals, group = Totals(), CounterGroup(1.0, 1, {"packet_seq_err": 5})
    for at_s in (1.0, 2.0):
        totals.take(HostSample(at_s, (), {KEY: group}))
    assert totals.of(HostSample(2.0, (), {KEY: group}))[KEY] == {"packet_seq_err": 5}
