"""The exporter's page shows the last sample, with sums over all samples."""

from exposition import LOSS

from busbw.core.link_samples import IB, CounterGroup, HostLink, HostSample, WatchInterval
from busbw.watch import totals
from busbw.watch.totals import Page

LINK = HostLink("mlx5_0", IB, 50e9, device="mlx5_0", port="1")
KEY = ("mlx5_0", "hw_counters")


def sample(at_s: float, count: int) -> HostSample:
    return HostSample(at_s, (LINK,), {KEY: CounterGroup(at_s, 1, {"packet_seq_err": count})})


def test_sums_samples_and_missed_ones():
    page = Page(sample(1.0, 70))
    assert (page.shown.values[KEY], page.shown.samples, page.shown.missed) == (
        {"packet_seq_err": 70},
        1,
        0,
    )
    page.take(sample(2.0, 75), WatchInterval(host="h1", at="", seconds=1.0, missed=2))
    page.take(sample(3.0, 3), WatchInterval(host="h1", at="", seconds=1.0, missed=1))
    assert (page.shown.values[KEY], page.shown.samples, page.shown.missed) == (
        {"packet_seq_err": 78},
        3,
        3,
    )
    assert page.shown.links == (LINK,)


def test_a_pattern_of_one_interval_is_shown_with_its_time_for_a_while(monkeypatch):
    page = Page(sample(1.0, 70))
    page.take(sample(2.0, 75), WatchInterval(host="h1", at="", seconds=1.0, findings=[LOSS]))
    at_s = page.shown.unix_s
    page.take(sample(3.0, 75), WatchInterval(host="h1", at="", seconds=1.0))
    assert page.shown.findings == []
    assert list(page.shown.seen.items()) == [((LOSS.link, LOSS.pattern, LOSS.verdict), at_s)]
    monkeypatch.setattr(totals, "SEEN_S", 0.0)
    page.take(sample(4.0, 75), WatchInterval(host="h1", at="", seconds=1.0))
    assert page.shown.seen == {}
