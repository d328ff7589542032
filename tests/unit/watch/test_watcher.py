"""Samples of a host become intervals: rates of the last one, patterns of about a second, links
that come and go.
"""

import pytest

from busbw.core.link_samples import HOST, IB, CounterGroup, HostLink, HostSample
from busbw.core.telemetry import TCP
from busbw.watch.watcher import Watcher

ONE = HostLink("mlx5_0", IB, 50e9, device="mlx5_0", port="1")
TWO = HostLink("mlx5_1", IB, 50e9, device="mlx5_1", port="1")


def sample(at_s: float, *links: HostLink, **values: int) -> HostSample:
    groups = {
        (link.name, "counters"): CounterGroup(at_s, 1, {"state": 4, **values}) for link in links
    }
    return HostSample(
        at_s, links, groups | {(TCP, "snmp"): CounterGroup(at_s, 0, {"RetransSegs": int(at_s)})}
    )


def test_rates_are_of_the_last_interval_and_shares_of_the_line():
    watcher = Watcher("h1", sample(0.0, ONE, port_xmit_data=0))
    watcher.take(sample(1.0, ONE, port_xmit_data=1_000_000_000))
    interval = watcher.take(
        sample(2.0, ONE, port_xmit_data=9_000_000_000), missed=2, now=lambda: 1_750_000_000.25
    )
    (flow,) = interval.links
    assert (flow.tx, flow.rate, interval.seconds, interval.missed, interval.tcp) == (
        32e9,
        50e9,
        1.0,
        2,
        {"RetransSegs": 1.0},
    )
    assert (interval.host, interval.at) == ("h1", "2025-06-15T15:06:40.250+00:00")


def test_patterns_of_short_intervals_are_read_over_a_second():
    watcher = Watcher("h1", sample(0.0, ONE, packet_seq_err=0))
    intervals = [
        watcher.take(sample(tick / 10, ONE, packet_seq_err=5 if tick >= 3 else 0))
        for tick in range(1, 16)
    ]
    patterns = [[match.pattern for match in watched.findings] for watched in intervals]
    assert patterns[:2] == [[], []]
    assert patterns[2:11] == [["loss"]] * 9, "the loss stays visible for a second"
    assert patterns[12:] == [[]] * 3
    assert [watched.links[0].lost for watched in intervals[1:4]] == [
        0.0,
        pytest.approx(50.0),
        0.0,
    ], "rates are of each interval"


def test_an_unplugged_link_is_absent_until_it_returns():
    watcher = Watcher("h1", sample(0.0, ONE, TWO))
    away = [watcher.take(sample(at_s, ONE)) for at_s in (1.0, 2.0)]
    for watched in away:
        assert [(flow.name, flow.state) for flow in watched.links] == [
            ("mlx5_0", ""),
            ("mlx5_1", "gone"),
        ]
        assert [(match.link, match.pattern) for match in watched.findings] == [("mlx5_1", "gone")]
    report = watcher.take(sample(3.0, ONE, TWO))
    assert [(flow.name, flow.state) for flow in report.links] == [
        ("mlx5_0", ""),
        ("mlx5_1", "new"),
    ] and not report.findings
    assert [flow.state for flow in watcher.take(sample(4.0, ONE, TWO)).links] == ["", ""]


def test_cpu_and_memory_are_those_that_were_read():
    host = {(HOST, "system"): CounterGroup(1.0, 0, {"cpu_busy": 3, "mem_free": 1 << 30})}
    interval = Watcher("h1", sample(0.0, ONE)).take(HostSample(1.0, (ONE,), host))
    assert (interval.cpu, interval.free_memory_bytes) == (0.003, 1 << 30)
    assert Watcher("h1", sample(0.0, ONE)).take(sample(1.0, ONE)).cpu is None
