"""What a watch exports, in Prometheus' text format."""

from busbw.core import telemetry
from busbw.core.finding import Verdict
from busbw.core.link_samples import Exposition, HostLink
from busbw.core.watch_counters import levels, watched_by_name
from busbw.ui.metric_text import COUNTER, GAUGE, Labels, MetricText
from busbw.watch.metric_names import (
    Metric,
    ethtool_metric,
    gpu_metric,
    interface_metric,
    port_metric,
    tcp_metric,
)

# The metrics that are not of one counter: their type and meaning.
LINK_RATE = "busbw_link_rate_bytes_per_second"
PORT_RATE = "busbw_infiniband_rate_bytes_per_second"
PATTERN = "busbw_watch_pattern"
LAST_SEEN = "busbw_watch_pattern_last_seen_timestamp_seconds"
SAMPLES = "busbw_watch_samples_total"
MISSED = "busbw_watch_missed_samples_total"
LAST_SAMPLE = "busbw_watch_last_sample_timestamp_seconds"
OTHERS = {
    LINK_RATE: (GAUGE, "rate of a link that is no RDMA port, in one direction"),
    PORT_RATE: (GAUGE, "rate of the RDMA port in one direction"),
    PATTERN: (GAUGE, "1 while a pattern of counters is seen on a link"),
    LAST_SEEN: (GAUGE, "time at which a pattern was last seen on a link, for an hour"),
    SAMPLES: (COUNTER, "readings of all counters"),
    MISSED: (COUNTER, "readings left out because an earlier one took too long"),
    LAST_SAMPLE: (GAUGE, "time of the last reading"),
}


def render(shown: Exposition) -> bytes:
    page = MetricText()
    _add_counters(page, shown)
    _add_rates(page, shown)
    for match in shown.findings:
        _add_other(page, PATTERN, _pattern(match.link, match.pattern, match.verdict), 1)
    for seen, at_s in shown.seen.items():
        _add_other(page, LAST_SEEN, _pattern(*seen), at_s)
    _add_other(page, SAMPLES, (), shown.samples)
    _add_other(page, MISSED, (), shown.missed)
    _add_other(page, LAST_SAMPLE, (), shown.unix_s)
    return page.text().encode()


def _add_other(page: MetricText, name: str, labels: Labels, value: float) -> None:
    kind, meaning = OTHERS[name]
    page.add(name, kind, meaning, labels, value)


def _add_counters(page: MetricText, shown: Exposition) -> None:
    links = {link.name: link for link in shown.links}
    for (subject, source), values in shown.values.items():
        link = links.get(subject)
        for counter, value in values.items():
            metric = _metric(subject, source, counter, link)
            if metric:
                number = value if metric.scale == 1 else value * metric.scale
                labels = _link_labels(subject, source, link) + metric.labels
                page.add(metric.name, kind_of(counter), meaning_of(counter), labels, number)


def kind_of(counter: str) -> str:
    """The type of a counter's or level's metric."""
    return GAUGE if counter in levels() else COUNTER


def meaning_of(counter: str) -> str:
    """What a counter or level says."""
    return levels()[counter] if counter in levels() else watched_by_name()[counter].meaning


def _add_rates(page: MetricText, shown: Exposition) -> None:
    for link in shown.links:
        if link.rate is None:
            continue
        if link.device:
            _add_other(page, PORT_RATE, _port(link), link.rate)
        else:
            _add_other(page, LINK_RATE, (("link", link.name), ("kind", link.kind)), link.rate)


def _pattern(link: str, pattern: str, verdict: Verdict) -> Labels:
    return ("link", link), ("pattern", pattern), ("verdict", verdict.value)


def _port(link: HostLink) -> Labels:
    return ("device", link.device), ("port", link.port)


def _metric(subject: str, source: str, counter: str, link: HostLink | None) -> Metric | None:
    """The metric of one value; None for CPU time and memory, which only node_exporter has."""
    if subject == telemetry.TCP:
        return tcp_metric(counter)
    if source == "dev":
        return interface_metric(counter)
    if source == "ethtool":
        return ethtool_metric(counter)
    if link is None:
        return None
    return port_metric(counter) if link.device else gpu_metric(counter)


def _link_labels(subject: str, source: str, link: HostLink | None) -> Labels:
    """The labels of the subject: none for TCP, which is of the whole network namespace."""
    if source in ("dev", "ethtool"):
        return (("device", subject),)
    if link is None:
        return ()
    if link.device:
        return _port(link)
    return ("gpu", link.name.partition(" ")[0].removeprefix("GPU")), ("bus", link.bus)
