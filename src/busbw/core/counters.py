"""The counters read beside a measurement: one row each, with where it stands, its unit, and what it means when it moves.

Names are the kernel's and NVML's own. Sources: Linux Documentation/ABI/stable/sysfs-class-infiniband and
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; Documentation/networking/snmp_counter.rst; nvml.h.
"""

from dataclasses import dataclass
from enum import Enum


class Sense(Enum):
    """What it says when a counter moves."""

    TRAFFIC = "traffic"  # data went through
    THROTTLE = "throttle"  # the GPU held its clocks back
    CONGESTION = "congestion"  # somebody was asked to send more slowly
    LOSS = "loss"  # data was lost, sent again or late
    FAULT = "fault"  # a link or a memory failed


class Place(Enum):
    """Whose counter it is."""

    GPU = "GPU"
    RDMA = "RDMA port"
    INTERFACE = "interface"
    TCP = "TCP"


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter. `scale` turns its steps into `unit`; fewer than `notable`, or than `notable_per_byte` of traffic, prove nothing.

    One of `bits` starts again at 0 behind its largest value, or stays there where it `saturates`.
    """

    name: str
    place: Place
    source: str  # NVML's constant; the file below the port; the file of /proc
    sense: Sense
    meaning: str
    unit: str = "events"
    scale: int = 1
    bits: int = 64
    saturates: bool = False
    notable: int = 1
    notable_per_byte: float = 0.0


SPARSE = 1e-7  # one in 10 MB: TCP mends so few within a round trip or two each


def _gpu(name: str, constant: str, sense: Sense, meaning: str, unit: str = "events") -> Counter:
    return Counter(name, Place.GPU, f"NVML_FI_DEV_{constant}", sense, meaning, unit)


def _hw(name: str, sense: Sense, meaning: str, *, bits: int = 32) -> Counter:
    return Counter(name, Place.RDMA, f"hw_counters/{name}", sense, meaning, bits=bits)


def _port(name: str, sense: Sense, meaning: str, *, bits: int) -> Counter:
    return Counter(name, Place.RDMA, f"counters/{name}", sense, meaning, bits=bits, saturates=True)


def _tcp(name: str, sense: Sense, meaning: str, *, file: str = "netstat", notable: int = 1) -> Counter:
    return Counter(name, Place.TCP, f"/proc/net/{file}", sense, meaning, notable=notable, notable_per_byte=SPARSE if notable > 1 else 0.0)


# NVML gave the counters of single clocks event reasons other numbers from release to release; those of policies have kept theirs.
_GPU = (
    _gpu("power_policy", "PERF_POLICY_POWER", Sense.THROTTLE, "clocks held below by the power limit", "ns"),
    _gpu("thermal_policy", "PERF_POLICY_THERMAL", Sense.THROTTLE, "clocks held below by temperature", "ns"),
    _gpu("board_limit_policy", "PERF_POLICY_BOARD_LIMIT", Sense.THROTTLE, "clocks held below by the board's own limit", "ns"),
    _gpu("reliability_policy", "PERF_POLICY_RELIABILITY", Sense.THROTTLE, "clocks held below by voltage reliability", "ns"),
    _gpu("ecc_corrected", "ECC_SBE_VOL_TOTAL", Sense.LOSS, "memory errors corrected by ECC since the driver started"),
    _gpu("ecc_uncorrected", "ECC_DBE_VOL_TOTAL", Sense.FAULT, "memory errors that ECC could not correct since the driver started"),
    _gpu("rows_remapped_uncorrected", "REMAPPED_UNC", Sense.FAULT, "memory rows replaced after uncorrected errors"),
    _gpu("rows_remapped_pending", "REMAPPED_PENDING", Sense.FAULT, "memory rows wait for a GPU reset to be replaced", "yes or no"),
    _gpu("rows_remap_failed", "REMAPPED_FAILURE", Sense.FAULT, "a memory row could not be replaced", "yes or no"),
    _gpu("nvlink_crc_flit", "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", Sense.LOSS, "NVLink flow control units with a wrong checksum, sent again"),
    _gpu("nvlink_crc_data", "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", Sense.LOSS, "NVLink data with a wrong checksum, sent again"),
    _gpu("nvlink_replay", "NVLINK_REPLAY_ERROR_COUNT_TOTAL", Sense.LOSS, "NVLink packets sent again"),
    _gpu("nvlink_recovery", "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", Sense.FAULT, "NVLink had to be trained again"),
    _gpu("pcie_replay", "PCIE_REPLAY_COUNTER", Sense.LOSS, "PCIe packets sent again"),
)  # fmt: skip

_RDMA = (
    Counter("port_xmit_data", Place.RDMA, "counters/port_xmit_data", Sense.TRAFFIC, "data sent", "bytes", scale=4),
    Counter("port_rcv_data", Place.RDMA, "counters/port_rcv_data", Sense.TRAFFIC, "data received", "bytes", scale=4),
    Counter("port_xmit_wait", Place.RDMA, "counters/port_xmit_wait", Sense.CONGESTION,
            "data waited for credits: the far side of the link is congested", "ticks",
            bits=32, saturates=True, notable=1000),
    _port("symbol_error", Sense.LOSS, "symbols received wrong: cable or optics", bits=16),
    _port("link_error_recovery", Sense.FAULT, "the link recovered from errors", bits=8),
    _port("link_downed", Sense.FAULT, "the link went down", bits=8),
    _port("port_rcv_errors", Sense.LOSS, "packets received with errors", bits=16),
    _port("port_xmit_discards", Sense.LOSS, "packets dropped before they were sent", bits=16),
    _port("local_link_integrity_errors", Sense.LOSS, "too many errors on the link itself", bits=4),
    _port("excessive_buffer_overrun_errors", Sense.LOSS, "the far side sent without credits", bits=4),
    _hw("out_of_sequence", Sense.LOSS, "packets arrived out of order: one was lost, or paths differ"),
    _hw("packet_seq_err", Sense.LOSS, "the receiver asked for a lost packet"),
    _hw("local_ack_timeout_err", Sense.LOSS, "no acknowledgement came in time"),
    _hw("implied_nak_seq_err", Sense.LOSS, "an acknowledgement told of a lost packet"),
    _hw("roce_adp_retrans", Sense.LOSS, "adaptive retransmissions"),
    _hw("roce_adp_retrans_to", Sense.LOSS, "adaptive retransmissions that ran into their limit"),
    _hw("roce_slow_restart", Sense.LOSS, "slow restarts after loss"),
    _hw("rnr_nak_retry_err", Sense.LOSS, "the receiver was not ready: no buffer was posted"),
    _hw("out_of_buffer", Sense.LOSS, "packets dropped because no buffer was posted"),
    _hw("rx_icrc_encapsulated", Sense.LOSS, "RoCE packets with a wrong checksum"),
    _hw("req_transport_retries_exceeded", Sense.FAULT, "a sender gave up: NCCL ends with error 12"),
    _hw("req_rnr_retries_exceeded", Sense.FAULT, "a sender gave up on a receiver that was never ready"),
    _hw("np_ecn_marked_roce_packets", Sense.CONGESTION, "packets arrived with a switch's congestion mark", bits=64),
    _hw("np_cnp_sent", Sense.CONGESTION, "congestion notifications sent: senders to here were slowed", bits=64),
    _hw("rp_cnp_handled", Sense.CONGESTION, "congestion notifications obeyed: sending was slowed", bits=64),
    _hw("rp_cnp_ignored", Sense.CONGESTION, "congestion notifications not obeyed: congestion control is off", bits=64),
)  # fmt: skip

_INTERFACE = (
    Counter("rx_bytes", Place.INTERFACE, "/proc/net/dev", Sense.TRAFFIC, "data received", "bytes"),
    Counter("rx_errors", Place.INTERFACE, "/proc/net/dev", Sense.LOSS, "packets received with errors"),
    Counter("rx_dropped", Place.INTERFACE, "/proc/net/dev", Sense.LOSS, "packets received and dropped", notable=10),
    Counter("rx_fifo_errors", Place.INTERFACE, "/proc/net/dev", Sense.LOSS, "packets lost because the host was late to fetch them"),
    Counter("tx_bytes", Place.INTERFACE, "/proc/net/dev", Sense.TRAFFIC, "data sent", "bytes"),
    Counter("tx_errors", Place.INTERFACE, "/proc/net/dev", Sense.LOSS, "packets that could not be sent"),
    Counter("tx_dropped", Place.INTERFACE, "/proc/net/dev", Sense.LOSS, "packets dropped before they were sent"),
    Counter("carrier_down_count", Place.INTERFACE, "/sys/class/net/*/carrier_down_count", Sense.FAULT, "the link went down"),
)

_TCP = (
    _tcp("RetransSegs", Sense.LOSS, "segments sent again", file="snmp", notable=10),
    _tcp("TCPTimeouts", Sense.LOSS, "retransmission timers ran out: each at least 0.2 s of silence where no program asks for less"),
    # A far side that is merely busy draws probes too, so few of them prove no loss.
    _tcp("TCPLossProbes", Sense.LOSS, "probes sent because no acknowledgement came", notable=100),
    _tcp("TCPFastRetrans", Sense.LOSS, "segments sent again after later ones had arrived", notable=10),
    _tcp("TCPSlowStartRetrans", Sense.LOSS, "segments sent again after a timeout", notable=10),
    _tcp("TCPRcvQDrop", Sense.LOSS, "segments dropped because the receive buffer was full"),
    _tcp("TCPBacklogDrop", Sense.LOSS, "segments dropped because the socket was busy"),
    _tcp("ListenDrops", Sense.LOSS, "connections refused by a full queue"),
    _tcp("TCPAbortOnTimeout", Sense.FAULT, "connections given up after many timeouts"),
)

COUNTERS: tuple[Counter, ...] = _GPU + _RDMA + _INTERFACE + _TCP
BY_NAME: dict[str, Counter] = {counter.name: counter for counter in COUNTERS}


def at(place: Place) -> tuple[Counter, ...]:
    """The counters of one place, in order of the table."""
    return tuple(counter for counter in COUNTERS if counter.place is place)
