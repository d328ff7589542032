"""Counters that a watch reads in addition to those of core/counters.py.

The counters there are also read before and after each size, so that there must be few of them.
Sources as there, and drivers/infiniband/hw/mlx5/counters.c, drivers/infiniband/hw/efa/efa_verbs.c.
"""

from busbw.core.counters import BY_NAME as MEASURED
from busbw.core.counters import Counter, CounterKind, Owner

PRIORITIES = range(8)  # of IEEE 802.1Q
DIRECTIONS = {"tx": "sent", "rx": "received"}
ETHTOOL = "ethtool -S"
_GPU = (
    Counter(
        "nvlink_tx",
        Owner.GPU,
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
        CounterKind.TRAFFIC,
        "data sent over all links",
        "bytes",
        scale=1024,
    ),
    Counter(
        "nvlink_rx",
        Owner.GPU,
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
        CounterKind.TRAFFIC,
        "data received over all links",
        "bytes",
        scale=1024,
    ),
)
_SEGMENTS = Counter("OutSegs", Owner.TCP, "/proc/net/snmp", CounterKind.TRAFFIC, "segments sent")
# Values that are not counters: only the last reading matters.
LEVELS: dict[str, str] = {
    "outbound_pci_stalled_rd": "percent of the last second in which reads of host memory stalled",
    "outbound_pci_stalled_wr": "percent of the last second in which writes to host memory stalled",
    "state": "state of the port (1: down, 2: initializing, 3: armed, 4: active)",
    "phys_state": (
        "physical state of the port (2: polling, 3: disabled, 5: link up, 6: error recovery)"
    ),
    "num_of_qp": "queue pairs of the device",
    "operational": "1 if the interface is up",
    "pcie_gen": "current PCIe generation",
    "pcie_width": "current PCIe lanes",
    "pcie_tx": "bytes per second that the GPU sends over PCIe",
    "pcie_rx": "bytes per second that the GPU receives over PCIe",
    "cpu_busy": "thousandths of all CPUs' time in which they were busy, since the reading before",
    "mem_free": "bytes of free memory",
}
BY_NVML: tuple[Counter, ...] = _GPU


def _rdma(
    folder: str,
    name: str,
    kind: CounterKind,
    meaning: str,
    *,
    unit: str = "events",
    bits: int = 64,
    saturates: bool = False,
) -> Counter:
    return Counter(
        name, Owner.RDMA, f"{folder}/{name}", kind, meaning, unit, bits=bits, saturates=saturates
    )


def _port(name: str, kind: CounterKind, meaning: str, bits: int) -> Counter:
    return _rdma("counters", name, kind, meaning, bits=bits, saturates=True)


def _packets(name: str, meaning: str) -> Counter:
    return _rdma("counters", name, CounterKind.TRAFFIC, meaning, unit="packets")


def _queue(name: str, kind: CounterKind, meaning: str) -> Counter:
    return _rdma("hw_counters", name, kind, meaning, bits=32)


def _wide(name: str, kind: CounterKind, meaning: str, unit: str = "events") -> Counter:
    return _rdma("hw_counters", name, kind, meaning, unit=unit)


def _phy(name: str, kind: CounterKind, meaning: str, unit: str = "events") -> Counter:
    return Counter(name, Owner.INTERFACE, ETHTOOL, kind, meaning, unit)


_PORT = (
    _packets("port_xmit_packets", "packets sent"),
    _packets("port_rcv_packets", "packets received"),
    _packets("unicast_xmit_packets", "unicast packets sent"),
    _packets("unicast_rcv_packets", "unicast packets received"),
    _packets("multicast_xmit_packets", "multicast packets sent"),
    _packets("multicast_rcv_packets", "multicast packets received"),
    _port(
        "port_rcv_remote_physical_errors",
        CounterKind.LOSS,
        "packets that the sender or a switch marked as broken",
        16,
    ),
    _port(
        "port_rcv_switch_relay_errors",
        CounterKind.LOSS,
        "packets that a switch could not forward",
        16,
    ),
    _port(
        "port_xmit_constraint_errors",
        CounterKind.LOSS,
        "packets not sent because of a partition or raw filter",
        8,
    ),
    _port(
        "port_rcv_constraint_errors",
        CounterKind.LOSS,
        "packets discarded because of a partition or raw filter",
        8,
    ),
    _port("VL15_dropped", CounterKind.LOSS, "management packets dropped for lack of buffers", 16),
)
_QUEUES = (
    _queue("rx_write_requests", CounterKind.TRAFFIC, "writes received"),
    _queue("rx_read_requests", CounterKind.TRAFFIC, "reads received"),
    _queue("rx_atomic_requests", CounterKind.TRAFFIC, "atomic operations received"),
    _queue(
        "rx_dct_connect",
        CounterKind.TRAFFIC,
        "connections to dynamically connected transport received",
    ),
    _queue("duplicate_request", CounterKind.LOSS, "requests received again"),
    _queue("resp_local_length_error", CounterKind.FAULT, "a received message had a wrong length"),
    _queue(
        "resp_cqe_error", CounterKind.FAULT, "operations of the responder that ended with an error"
    ),
    _queue(
        "req_cqe_error", CounterKind.FAULT, "operations of the requester that ended with an error"
    ),
    _queue(
        "req_remote_invalid_request",
        CounterKind.FAULT,
        "requests that the remote end called invalid",
    ),
    _queue(
        "req_remote_access_errors",
        CounterKind.FAULT,
        "requests to memory that the remote end protects",
    ),
    _queue(
        "resp_remote_access_errors", CounterKind.FAULT, "requests of others to protected memory"
    ),
    _queue(
        "resp_cqe_flush_error", CounterKind.FAULT, "receives flushed from a queue that is in error"
    ),
    _queue("req_cqe_flush_error", CounterKind.FAULT, "sends flushed from a queue that is in error"),
    _queue(
        "roce_slow_restart_cnps",
        CounterKind.CONGESTION,
        "congestion notifications generated by slow restart",
    ),
    _queue("roce_slow_restart_trans", CounterKind.LOSS, "changes to the state slow restart"),
)
# They are off unless `rdma statistic set link` switches them on.
_OPTIONAL = (
    _wide("cc_rx_ce_pkts", CounterKind.CONGESTION, "packets arrived with a congestion mark"),
    _wide("cc_rx_cnp_pkts", CounterKind.CONGESTION, "congestion notifications received"),
    _wide("cc_tx_cnp_pkts", CounterKind.CONGESTION, "congestion notifications sent"),
)
# AWS's Elastic Fabric Adapter.
_EFA = (
    _wide("tx_bytes", CounterKind.TRAFFIC, "data sent", "bytes"),
    _wide("rx_bytes", CounterKind.TRAFFIC, "data received", "bytes"),
    _wide("tx_pkts", CounterKind.TRAFFIC, "packets sent", "packets"),
    _wide("rx_pkts", CounterKind.TRAFFIC, "packets received", "packets"),
    _wide("rx_drops", CounterKind.LOSS, "packets received and dropped"),
    _wide("send_bytes", CounterKind.TRAFFIC, "data of sends", "bytes"),
    _wide("recv_bytes", CounterKind.TRAFFIC, "data of receives", "bytes"),
    _wide("rdma_read_bytes", CounterKind.TRAFFIC, "data of reads", "bytes"),
    _wide("rdma_write_bytes", CounterKind.TRAFFIC, "data of writes", "bytes"),
    _wide("rdma_read_wr_err", CounterKind.FAULT, "reads that ended with an error"),
    _wide("retrans_bytes", CounterKind.LOSS, "data resent", "bytes"),
    _wide("retrans_pkts", CounterKind.LOSS, "packets resent"),
    _wide("retrans_timeout_events", CounterKind.LOSS, "packets resent after a timeout"),
    _wide("unresponsive_remote_events", CounterKind.FAULT, "a remote end did not answer"),
)


def _priority(number: int) -> tuple[Counter, ...]:
    """The counters of one priority.

    Pauses received kept this port from sending, pauses sent kept the other end from sending.
    """
    of_priority = f"of priority {number}"
    rows = []
    for direction, verb in DIRECTIONS.items():
        base = f"{direction}_prio{number}"
        paused = f"time paused by frames {verb} for priority {number}"
        rows += [
            _phy(f"{base}_bytes", CounterKind.TRAFFIC, f"data {of_priority} {verb}", "bytes"),
            _phy(f"{base}_pause", CounterKind.CONGESTION, f"pause frames {of_priority} {verb}"),
            _phy(f"{base}_pause_duration", CounterKind.CONGESTION, paused, "us"),
        ]
    for name, meaning in (
        ("buf_discard", "packets dropped for lack of buffers"),
        ("cong_discard", "packets dropped by congestion"),
        ("discards", "packets dropped"),
    ):
        rows.append(_phy(f"rx_prio{number}_{name}", CounterKind.LOSS, f"{meaning} {of_priority}"))
    marked = f"packets {of_priority} marked for congestion"
    rows.append(_phy(f"rx_prio{number}_marked", CounterKind.CONGESTION, marked))
    return tuple(rows)


def _in_direction(direction: str, verb: str) -> tuple[Counter, ...]:
    discards = "packets not sent"
    if direction == "rx":
        discards = "packets dropped at the port for lack of buffers"
    data = f"data {verb} on the wire, with headers and checksums"
    paused = f"time paused by frames {verb} for the whole link"
    rdma = f"{direction}_vport_rdma_unicast"
    return (
        _phy(f"{direction}_bytes_phy", CounterKind.TRAFFIC, data, "bytes"),
        _phy(
            f"{direction}_packets_phy",
            CounterKind.TRAFFIC,
            f"packets {verb} on the wire",
            "packets",
        ),
        _phy(f"{direction}_discards_phy", CounterKind.LOSS, discards),
        _phy(f"{direction}_pause_ctrl_phy", CounterKind.CONGESTION, f"pause frames {verb}"),
        _phy(
            f"{direction}_global_pause",
            CounterKind.CONGESTION,
            f"pause frames for the whole link {verb}",
        ),
        _phy(f"{direction}_global_pause_duration", CounterKind.CONGESTION, paused, "us"),
        _phy(f"{rdma}_bytes", CounterKind.TRAFFIC, f"RDMA data {verb}", "bytes"),
        _phy(f"{rdma}_packets", CounterKind.TRAFFIC, f"RDMA packets {verb}", "packets"),
        _phy(f"{direction}_pci_signal_integrity", CounterKind.LOSS, f"PCIe errors of data {verb}"),
    )


_PHY = (
    *(row for direction, verb in DIRECTIONS.items() for row in _in_direction(direction, verb)),
    *(row for number in PRIORITIES for row in _priority(number)),
    _phy(
        "tx_pause_storm_warning_events", CounterKind.FAULT, "this port sent pauses for a long time"
    ),
    _phy(
        "tx_pause_storm_error_events",
        CounterKind.FAULT,
        "this port sent pauses until it was kept from it, and may have dropped packets then",
    ),
    _phy(
        "rx_bits_phy", CounterKind.TRAFFIC, "bits received, the measure of corrected ones", "bits"
    ),
    _phy(
        "rx_corrected_bits_phy",
        CounterKind.TRAFFIC,
        "bits corrected by forward error correction",
        "bits",
    ),
    _phy("rx_crc_errors_phy", CounterKind.LOSS, "packets with a checksum error"),
    _phy("rx_symbol_err_phy", CounterKind.LOSS, "symbol errors: cable or optics"),
    _phy(
        "rx_pcs_symbol_err_phy",
        CounterKind.LOSS,
        "symbol errors that were not corrected: cable or optics",
    ),
    _phy("rx_oversize_pkts_phy", CounterKind.LOSS, "packets dropped because they exceed the MTU"),
    _phy("link_down_events_phy", CounterKind.FAULT, "the link went down"),
    _phy(
        "outbound_pci_stalled_rd_events",
        CounterKind.CONGESTION,
        "events of stalled reads of host memory",
    ),
    _phy(
        "outbound_pci_stalled_wr_events",
        CounterKind.CONGESTION,
        "events of stalled writes to host memory",
    ),
    _phy(
        "outbound_pci_buffer_overflow",
        CounterKind.LOSS,
        "packets dropped because PCIe could not take them",
    ),
    _phy("module_high_temp", CounterKind.FAULT, "the optical module was too hot"),
    _phy("module_bus_stuck", CounterKind.FAULT, "the bus of the optical module was stuck"),
    _phy("module_bad_shorted", CounterKind.FAULT, "the cable of the module was shorted"),
)

ON_PORT: tuple[Counter, ...] = (
    *(row for row in MEASURED.values() if row.owner is Owner.RDMA),
    *_PORT,
    *_QUEUES,
    *_OPTIONAL,
    *_EFA,
)
BY_ETHTOOL: frozenset[str] = frozenset(
    {row.name for row in _PHY} | {"outbound_pci_stalled_rd", "outbound_pci_stalled_wr"}
)
BY_NAME: dict[str, Counter] = {
    row.name: row for row in (*ON_PORT, *_PHY, *_GPU, _SEGMENTS)
} | MEASURED
