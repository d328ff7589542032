"""A watch over time: lines keep their extremes, and errors have their time and increase."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.finding import Verdict
from busbw.core.link_samples import ROCE, LinkFinding, LinkFlow, WatchInterval
from busbw.ui.html.axes import time_ticks
from busbw.watch.over_time import MAX_BUCKETS, QUANTITIES, by_host, events, thinned

SENT = QUANTITIES[0]
START_S = 1764236400.0  # 2025-11-27 09:40 UTC
LOSS = LinkFinding("mlx5_0", "loss", Verdict.WARN, "packets are lost", "packet_seq_err 4/s")


def interval(
    second: int, *flows: LinkFlow, findings: tuple[LinkFinding, ...] = ()
) -> WatchInterval:
    at = f"2025-11-27T09:40:{second:02}+00:00"
    return WatchInterval(host="h1", at=at, seconds=2.0, links=list(flows), findings=list(findings))


def port(tx: float | None, **counters: float) -> LinkFlow:
    return LinkFlow(name="mlx5_0", kind=ROCE, tx=tx, counters=counters)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=2000))
def test_a_long_line_keeps_its_ends_and_extremes(values: list[float | None]) -> None:
    runs = thinned(enumerate(values), 1.0)
    drawn = [value for run in runs for value in run]
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    assert set(drawn) <= set(known)
    assert drawn == sorted(drawn)
    assert len(drawn) <= 2 * (MAX_BUCKETS + 1 + len(runs))
    if known:
        heights = [height for _, height in drawn]
        assert max(heights) == max(height for _, height in known)
        assert min(heights) == min(height for _, height in known)


def test_a_line_breaks_where_its_link_is_gone_or_unknown() -> None:
    gone = LinkFlow(name="mlx5_0", kind=ROCE, state="gone")
    watched = [interval(1, port(1e9)), interval(2, port(2e9)), interval(3, gone)]
    watched += [interval(4), interval(5, port(3e9)), interval(0, port(0.0))]
    (host,) = by_host(watched)
    assert host.times == [START_S + second for second in range(6)]
    runs = host.runs("mlx5_0", SENT)
    assert [[value for _, value in run] for run in runs] == [[0.0, 1.0, 2.0], [3.0]]


def test_counters_of_errors_have_their_increase_and_time() -> None:
    watched = [
        interval(1, port(1e9, packet_seq_err=4.0, tx_bytes=1e9)),
        interval(3, port(1e9, packet_seq_err=0.0, link_downed=0.5)),
        interval(5, port(1e9, packet_seq_err=10.0), findings=(LOSS,)),
    ]
    (host,) = by_host(watched)
    down, lost = host.errors
    assert (down.counter.name, down.increase, down.first_s) == ("link_downed", 1.0, START_S + 3)
    assert (lost.counter.name, lost.increase, lost.most) == ("packet_seq_err", 28.0, 10.0)
    assert (lost.first_s, lost.last_s) == (START_S + 1, START_S + 5)
    assert events(host, ["mlx5_0"]) == [
        (START_S + 1, "mlx5_0: packet_seq_err 4/s"),
        (START_S + 3, "mlx5_0: link_downed 0.5/s"),
        (START_S + 5, "mlx5_0: loss, packet_seq_err 4/s"),
    ]
    assert [(one.finding, one.intervals) for one in host.indications] == [(LOSS, 1)]


def test_hosts_of_one_file_are_apart() -> None:
    other = msgspec.structs.replace(interval(1, port(1.0)), host="h2")
    assert [host.host for host in by_host([other, interval(0)])] == ["h1", "h2"]


@given(st.integers(0, 10**10), st.integers(1, 10**10), st.integers(4, 11))
def test_times_are_round_and_no_more_than_asked(start_s: int, long_s: int, limit: int) -> None:
    ticks = time_ticks(start_s, start_s + long_s, limit)
    assert len(ticks) <= limit
    assert all(start_s <= at_s <= start_s + long_s for at_s, _ in ticks)


def test_times_of_a_minute_an_hour_and_a_month() -> None:
    def texts(long_s: float) -> list[str]:
        return [text for _, text in time_ticks(START_S, START_S + long_s, 5)]

    assert texts(60) == ["09:40:00", "09:40:15", "09:40:30", "09:40:45", "09:41:00"]
    assert texts(3600) == ["09:45", "10:00", "10:15", "10:30"]
    assert texts(30 * 86400) == ["12-04", "12-11", "12-18", "12-25"]
