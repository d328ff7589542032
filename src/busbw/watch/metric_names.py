"""The names of the metrics that a watch exports, and those of other exporters that are near them.

Every name begins with busbw_, so that no sum over a metric of another exporter counts twice. What
follows is node_exporter's name where it has the same value (its collectors infiniband, netdev,
netclass and ethtool). `near` is the metric of node_exporter or of DCGM's exporter (dcgm-exporter)
with the same or nearly the same value; '' if there is none.
"""

import re
from dataclasses import dataclass

from busbw.core.watch_counters import levels, watched_by_name
from busbw.ui.metric_text import Labels

PRIORITY = re.compile(r"(tx|rx)_prio(\d)_(\w+)")
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
    "nvlink_tx": ("nvlink_transmitted_bytes_total", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
    "nvlink_rx": ("nvlink_received_bytes_total", "DCGM_FI_PROF_NVLINK_RX_BYTES"),
    "nvlink_replay": ("nvlink_replay_total", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"),
    "nvlink_recovery": ("nvlink_recovery_total", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
    "nvlink_crc_flit": ("nvlink_crc_flit_total", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
    "nvlink_crc_data": ("nvlink_crc_data_total", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
    "pcie_tx": ("pcie_transmitted_bytes_per_second", "DCGM_FI_PROF_PCIE_TX_BYTES"),
    "pcie_rx": ("pcie_received_bytes_per_second", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    "pcie_replay": ("pcie_replay_total", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    "pcie_gen": ("pcie_generation", "DCGM_FI_DEV_PCIE_LINK_GEN"),
    "pcie_width": ("pcie_lanes", "DCGM_FI_DEV_PCIE_LINK_WIDTH"),
}
TCP = {
    "RetransSegs": "retransmitted_segments_total",
    "OutSegs": "sent_segments_total",
    "TCPTimeouts": "retransmission_timeouts_total",
    "TCPLossProbes": "loss_probes_total",
    "TCPFastRetrans": "fast_retransmissions_total",
    "TCPSlowStartRetrans": "slow_start_retransmissions_total",
    "TCPRcvQDrop": "receive_queue_drops_total",
    "TCPBacklogDrop": "backlog_drops_total",
    "ListenDrops": "listen_drops_total",
    "TCPAbortOnTimeout": "aborts_on_timeout_total",
}
IN_SNMP = ("RetransSegs", "OutSegs")  # of Tcp in /proc/net/snmp; the others are of TcpExt


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a counter or level. `scale` is its value for each unit of the counter."""

    name: str
    near: str = ""
    labels: Labels = ()  # in addition to those of the link
    scale: float = 1


def port_metric(counter: str) -> Metric:
    """The metric of an RDMA port's counter."""
    if counter in INFINIBAND:
        name = INFINIBAND[counter]
        return Metric(f"busbw_infiniband_{name}", f"node_infiniband_{name}")
    return Metric(f"busbw_infiniband_{counter}{'' if counter in levels() else '_total'}")


def interface_metric(counter: str) -> Metric:
    """The metric of an interface's counter of the kernel."""
    name = NETWORK[counter]
    return Metric(f"busbw_network_{name}", f"node_network_{name}")


def tcp_metric(counter: str) -> Metric:
    """The metric of a TCP counter of the network namespace."""
    near = f"node_netstat_{'Tcp' if counter in IN_SNMP else 'TcpExt'}_{counter}"
    return Metric(f"busbw_tcp_{TCP[counter]}", near)


def gpu_metric(counter: str) -> Metric:
    """The metric of a GPU's NVLinks or PCIe slot."""
    name, near = GPU[counter]
    return Metric(f"busbw_{name}", near)


def ethtool_metric(counter: str) -> Metric:
    """The metric of a counter of `ethtool -S`. Counters that exist for each priority share one
    metric with the priority as a label; durations are in seconds.
    """
    name = f"busbw_ethtool_{counter}"
    near = f"node_ethtool_{_in_words(counter)}"
    labels: Labels = ()
    match = PRIORITY.fullmatch(counter)
    if match:
        direction, priority, quantity = match.groups()
        name = f"busbw_ethtool_{direction}_priority_{quantity}"
        labels = (("priority", priority),)
    if counter in levels():
        return Metric(f"{name}_percent", near, labels)
    if watched_by_name()[counter].unit == "us":
        return Metric(f"{name}_seconds_total", near, labels, scale=1e-6)
    return Metric(f"{name}_total", near, labels)


def _in_words(counter: str) -> str:
    """`rx_prio3_bytes` as node_exporter has it: `received_prio3_bytes`."""
    words = {"rx": "received", "tx": "transmitted"}
    return "_".join(words.get(part, part) for part in counter.split("_"))
