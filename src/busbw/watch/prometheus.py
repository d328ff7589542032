"""What a watch exports, in Prometheus' text format (version 0.0.4).

Names and units are node_exporter's where it has them: its collectors infiniband, netdev, netclass
and netstat. Others begin with busbw_.
"""

import re
from collections.abc import Iterator

from busbw.core.link_samples import Exposition, Link
from busbw.core.telemetry import TCP
from busbw.core.unseen import escape_invisible
from busbw.core.watch_counters import BY_NAME, LEVELS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PRIORITY = re.compile(r"(tx|rx)_prio(\d)_(\w+)")
COUNTER, GAUGE, UNTYPED = "counter", "gauge", "untyped"
INFINIBAND = {
    "port_xmit_data": "port_data_transmitted_bytes_total",
    "port_rcv_data": "port_data_received_bytes_total",
    "port_xmit_packets": "port_packets_transmitted_total",
    "port_rcv_packets": "port_packets_received_total",
    "unicast_xmit_packets": "unicast_packets_transmitted_total",
    "unicast_rcv_packets": "unicast_packets_received_total",
    "multicast_xmit_packets": "multicast_packets_transmitted_total",
    "multicast_rcv_packets": "multicast_packets_received_total",
    "port_xmit_wait": "port_transmit_wait_total",
    "symbol_error": "symbol_error_total",
    "link_error_recovery": "link_error_recovery_total",
    "link_downed": "link_downed_total",
    "port_rcv_errors": "port_errors_received_total",
    "port_xmit_discards": "port_discards_transmitted_total",
    "port_rcv_remote_physical_errors": "port_receive_remote_physical_errors_total",
    "port_rcv_switch_relay_errors": "port_receive_switch_relay_errors_total",
    "port_xmit_constraint_errors": "port_constraint_errors_transmitted_total",
    "port_rcv_constraint_errors": "port_constraint_errors_received_total",
    "local_link_integrity_errors": "local_link_integrity_errors_total",
    "excessive_buffer_overrun_errors": "excessive_buffer_overrun_errors_total",
    "VL15_dropped": "vl15_dropped_total",
    "duplicate_request": "duplicate_requests_packets_total",
    "implied_nak_seq_err": "implied_nak_seq_errors_total",
    "local_ack_timeout_err": "local_ack_timeout_errors_total",
    "np_cnp_sent": "np_cnp_packets_sent_total",
    "np_ecn_marked_roce_packets": "np_ecn_marked_roce_packets_received_total",
    "out_of_buffer": "out_of_buffer_drops_total",
    "out_of_sequence": "out_of_sequence_packets_received_total",
    "packet_seq_err": "packet_sequence_errors_total",
    "req_cqe_error": "req_cqes_errors_total",
    "req_cqe_flush_error": "req_cqes_flush_errors_total",
    "req_remote_access_errors": "req_remote_access_errors_total",
    "req_remote_invalid_request": "req_remote_invalid_request_errors_total",
    "resp_cqe_error": "resp_cqes_errors_total",
    "resp_cqe_flush_error": "resp_cqes_flush_errors_total",
    "resp_local_length_error": "resp_local_length_errors_total",
    "resp_remote_access_errors": "resp_remote_access_errors_total",
    "rnr_nak_retry_err": "rnr_nak_retry_packets_received_total",
    "roce_adp_retrans": "roce_adp_retransmits_total",
    "roce_adp_retrans_to": "roce_adp_retransmits_timeout_total",
    "roce_slow_restart": "roce_slow_restart_used_total",
    "roce_slow_restart_cnps": "roce_slow_restart_cnps_total",
    "roce_slow_restart_trans": "roce_slow_restart_total",
    "rp_cnp_handled": "rp_cnp_packets_handled_total",
    "rp_cnp_ignored": "rp_cnp_ignored_packets_received_total",
    "rx_atomic_requests": "rx_atomic_requests_total",
    "rx_dct_connect": "rx_dct_connect_requests_total",
    "rx_read_requests": "rx_read_requests_total",
    "rx_write_requests": "rx_write_requests_total",
    "rx_icrc_encapsulated": "rx_icrc_encapsulated_errors_total",
    "state": "state_id",
    "phys_state": "physical_state_id",
}
NETWORK = {
    "rx_bytes": "receive_bytes_total",
    "rx_errors": "receive_errs_total",
    "rx_dropped": "receive_drop_total",
    "rx_fifo_errors": "receive_fifo_total",
    "tx_bytes": "transmit_bytes_total",
    "tx_errors": "transmit_errs_total",
    "tx_dropped": "transmit_drop_total",
    "carrier_down_count": "carrier_down_changes_total",
    "operational": "up",
}
GPU = {
    "nvlink_tx": "busbw_nvlink_transmitted_bytes_total",
    "nvlink_rx": "busbw_nvlink_received_bytes_total",
    "pcie_tx": "busbw_pcie_transmitted_bytes_per_second",
    "pcie_rx": "busbw_pcie_received_bytes_per_second",
    "pcie_gen": "busbw_pcie_generation",
    "pcie_width": "busbw_pcie_lanes",
}
IN_TCP = ("RetransSegs", "OutSegs")  # in /proc/net/snmp; node_exporter calls the others TcpExt
MICRO = 1e-6
Labels = tuple[tuple[str, str], ...]


class _Families:
    """Lines by metric: the format demands that all lines of a metric come together."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, kind: str, meaning: str, labels: Labels, value: float) -> None:
        if name not in self._lines:
            self._lines[name] = [
                f"# HELP {name} {_escape(meaning, quote=False)}",
                f"# TYPE {name} {kind}",
            ]
        pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
        number = f"{value:.15g}" if isinstance(value, float) else value
        self._lines[name].append(f"{name}{{{pairs}}} {number}" if labels else f"{name} {number}")

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._lines.values() for line in lines)


def _escape(text: str, *, quote: bool = True) -> str:
    text = escape_invisible(text).replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def render(shown: Exposition) -> bytes:
    """The whole page."""
    families = _Families()
    _add_counters(families, shown)
    _add_rates(families, shown)
    _add_patterns(families, shown)
    _add_samples(families, shown)
    return families.text().encode()


def _add_counters(families: _Families, shown: Exposition) -> None:
    links = {link.name: link for link in shown.links}
    for (subject, source), values in shown.values.items():
        for name, value in values.items():
            for metric, labels, number in _metrics(subject, source, name, value, links):
                families.add(metric, _type(subject, name), _meaning(name), labels, number)


def _type(subject: str, name: str) -> str:
    if name in LEVELS:
        return GAUGE
    return UNTYPED if subject == TCP else COUNTER


def _meaning(name: str) -> str:
    return LEVELS[name] if name in LEVELS else BY_NAME[name].meaning


def _add_rates(families: _Families, shown: Exposition) -> None:
    metric, meaning = "busbw_link_rate_bytes_per_second", "rate of the link in one direction"
    port_metric = "node_infiniband_rate_bytes_per_second"
    for link in shown.links:
        if link.rate is not None:
            labels = (("link", link.name), ("kind", link.kind))
            families.add(metric, GAUGE, meaning, labels, link.rate)
            if link.device:
                families.add(
                    port_metric, GAUGE, "maximum signal transfer rate", _port(link), link.rate
                )


def _add_patterns(families: _Families, shown: Exposition) -> None:
    meaning = "1 while a pattern of counters is seen on a link"
    for match in shown.said:
        verdict = match.verdict.value
        labels = (("link", match.link), ("pattern", match.pattern), ("verdict", verdict))
        families.add("busbw_watch_pattern", GAUGE, meaning, labels, 1)


def _add_samples(families: _Families, shown: Exposition) -> None:
    metric, meaning = "busbw_watch_samples_total", "readings of all counters"
    families.add(metric, COUNTER, meaning, (), shown.samples)
    metric = "busbw_watch_missed_samples_total"
    meaning = "readings left out because an earlier one took too long"
    families.add(metric, COUNTER, meaning, (), shown.missed)
    metric = "busbw_watch_last_sample_timestamp_seconds"
    families.add(metric, GAUGE, "time of the last reading", (), shown.unix_s)


def _port(link: Link) -> Labels:
    return ("device", link.device), ("port", link.port)


def _metrics(
    subject: str, source: str, name: str, value: int, links: dict[str, Link]
) -> Iterator[tuple[str, Labels, float]]:
    """The metric of one value; none for values of a host that node_exporter itself exports."""
    link = links.get(subject)
    if subject == TCP:
        yield f"node_netstat_{'Tcp' if name in IN_TCP else 'TcpExt'}_{name}", (), value
    elif link is not None and link.device and source != "dev":
        if name in INFINIBAND:
            metric = f"node_infiniband_{INFINIBAND[name]}"
        else:
            metric = f"busbw_infiniband_{name}{'' if name in LEVELS else '_total'}"
        yield metric, _port(link), value
    elif source == "dev":
        yield f"node_network_{NETWORK[name]}", (("device", subject),), value
    elif source == "ethtool":
        yield _ethtool(subject, name, value)
    elif link is not None:
        metric = GPU.get(name, f"busbw_{name}_total")
        number = link.name.partition(" ")[0].removeprefix("GPU")
        yield metric, (("gpu", number), ("bus", link.bus)), value


def _ethtool(interface: str, name: str, value: int) -> tuple[str, Labels, float]:
    """The metric of a counter of `ethtool -S`. Counters that exist for each priority share one
    metric with the priority as a label; durations are in seconds.
    """
    metric = f"busbw_ethtool_{name}"
    labels: Labels = (("device", interface),)
    match = PRIORITY.fullmatch(name)
    if match:
        direction, priority, quantity = match.groups()
        metric = f"busbw_ethtool_{direction}_priority_{quantity}"
        labels = (*labels, ("priority", priority))
    if name in LEVELS:
        return f"{metric}_percent", labels, value
    if BY_NAME[name].unit == "us":
        return f"{metric}_seconds_total", labels, value * MICRO
    return f"{metric}_total", labels, value
