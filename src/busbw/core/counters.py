"""The table of counters read before and after each size: where to read each one, its unit, and what
an increase means.

Names are the kernel's and NVML's own. Sources: Linux
Documentation/ABI/stable/sysfs-class-infiniband and
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst;
Documentation/networking/snmp_counter.rst; nvml.h.
"""

from dataclasses import dataclass
from enum import Enum

NOTABLE_PER_BYTE = 1e-7  # one in 10 MB: TCP recovers from so few within a round trip or two each
# port_xmit_wait counts ticks, whose length differs by device. The shortest that NVIDIA documents is
# the time of 8 bytes at the rate of the port; older switches count 32 bytes of each lane (ibdiagnet
# manual 2.13, "Congestion Assessment on InfiniBand Links"). It lists no adapter, so a share of time
# from 8 bytes is taken as the least that a port waited.
TICKS, CREDIT_TICK_BYTES = "ticks", 8
NOTABLE_CREDIT_SHARE = 0.1  # of the time: a busy fabric that is healthy waits, but for less


class CounterKind(Enum):
    """What an increase of a counter means."""

    TRAFFIC = "traffic"  # data was transferred
    THROTTLE = "throttle"  # GPU clocks were reduced
    CONGESTION = "congestion"  # a sender was slowed or had to wait
    LOSS = "loss"  # data was lost, resent or delayed
    FAULT = "fault"  # a link or memory failed


class Owner(Enum):
    """What a counter belongs to."""

    GPU = "GPU"
    RDMA = "RDMA port"
    INTERFACE = "interface"
    TCP = "TCP"


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter.

    Multiplied by `scale`, its value is in `unit`s. Increases below `notable`, or below
    `notable_per_byte` times the bytes of traffic, are ignored; of a counter of `ticks`, waits for
    less than NOTABLE_CREDIT_SHARE of the time. A counter has `bits` bits; at its largest value it
    wraps to 0, or stays there if it `saturates`.
    """

    name: str
    owner: Owner
    source: str  # NVML's constant, the file in the port's directory, or the file in /proc
    kind: CounterKind
    meaning: str
    unit: str = "events"
    scale: int = 1
    bits: int = 64
    saturates: bool = False
    notable: int = 1
    notable_per_byte: float = 0.0

    @property
    def ticks(self) -> bool:
        """Whether it counts ticks of waiting, so many of which are normal."""
        return self.unit == TICKS


def credit_share(ticks_per_s: float, rate: float) -> float:
    """The least share of the time for which a port of this rate, in bytes per second, waited.

    It is never more than all of the time, also where ticks are shorter.
    """
    return min(ticks_per_s * CREDIT_TICK_BYTES / rate, 1.0)


def _gpu(
    name: str, constant: str, kind: CounterKind, meaning: str, unit: str = "events"
) -> Counter:
    return Counter(name, Owner.GPU, f"NVML_FI_DEV_{constant}", kind, meaning, unit)


def _hw(name: str, kind: CounterKind, meaning: str, *, bits: int = 32) -> Counter:
    return Counter(name, Owner.RDMA, f"hw_counters/{name}", kind, meaning, bits=bits)


def _port(name: str, kind: CounterKind, meaning: str, *, bits: int) -> Counter:
    return Counter(name, Owner.RDMA, f"counters/{name}", kind, meaning, bits=bits, saturates=True)


def _tcp(
    name: str, kind: CounterKind, meaning: str, *, file: str = "netstat", notable: int = 1
) -> Counter:
    return Counter(
        name,
        Owner.TCP,
        f"/proc/net/{file}",
        kind,
        meaning,
        notable=notable,
        notable_per_byte=NOTABLE_PER_BYTE if notable > 1 else 0.0,
    )


# Field numbers of policy counters are stable across NVML releases; those of single clocks event
# reasons are not.
_GPU = (
    _gpu(
        "power_policy",
        "PERF_POLICY_POWER",
        CounterKind.THROTTLE,
        "time with clocks reduced by the power limit",
        "ns",
    ),
    _gpu(
        "thermal_policy",
        "PERF_POLICY_THERMAL",
        CounterKind.THROTTLE,
        "time with clocks reduced by temperature",
        "ns",
    ),
    _gpu(
        "board_limit_policy",
        "PERF_POLICY_BOARD_LIMIT",
        CounterKind.THROTTLE,
        "time with clocks reduced by the board limit",
        "ns",
    ),
    _gpu(
        "reliability_policy",
        "PERF_POLICY_RELIABILITY",
        CounterKind.THROTTLE,
        "time with clocks reduced by voltage reliability",
        "ns",
    ),
    _gpu(
        "ecc_corrected",
        "ECC_SBE_VOL_TOTAL",
        CounterKind.LOSS,
        "memory errors corrected by ECC since the driver started",
    ),
    _gpu(
        "ecc_uncorrected",
        "ECC_DBE_VOL_TOTAL",
        CounterKind.FAULT,
        "memory errors that ECC could not correct since the driver started",
    ),
    _gpu(
        "rows_remapped_uncorrected",
        "REMAPPED_UNC",
        CounterKind.FAULT,
        "memory rows replaced after uncorrected errors",
    ),
    _gpu(
        "rows_remapped_pending",
        "REMAPPED_PENDING",
        CounterKind.FAULT,
        "memory rows will be replaced at the next GPU reset",
        "yes or no",
    ),
    _gpu(
        "rows_remap_failed",
        "REMAPPED_FAILURE",
        CounterKind.FAULT,
        "a memory row could not be replaced",
        "yes or no",
    ),
    _gpu(
        "nvlink_crc_flit",
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        CounterKind.LOSS,
        "NVLink flow control units with a checksum error, resent",
    ),
    _gpu(
        "nvlink_crc_data",
        "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        CounterKind.LOSS,
        "NVLink data with a checksum error, resent",
    ),
    _gpu(
        "nvlink_replay",
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        CounterKind.LOSS,
        "NVLink packets resent",
    ),
    _gpu(
        "nvlink_recovery",
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        CounterKind.FAULT,
        "NVLink was retrained",
    ),
    _gpu("pcie_replay", "PCIE_REPLAY_COUNTER", CounterKind.LOSS, "PCIe packets resent"),
)

_RDMA = (
    Counter(
        "port_xmit_data",
        Owner.RDMA,
        "counters/port_xmit_data",
        CounterKind.TRAFFIC,
        "data sent",
        "bytes",
        scale=4,
    ),
    Counter(
        "port_rcv_data",
        Owner.RDMA,
        "counters/port_rcv_data",
        CounterKind.TRAFFIC,
        "data received",
        "bytes",
        scale=4,
    ),
    Counter(
        "port_xmit_wait",
        Owner.RDMA,
        "counters/port_xmit_wait",
        CounterKind.CONGESTION,
        "data waited for credits: the other end of the link is congested",
        TICKS,
        bits=32,
        saturates=True,
    ),
    _port("symbol_error", CounterKind.LOSS, "symbol errors: cable or optics", bits=16),
    _port("link_error_recovery", CounterKind.FAULT, "the link recovered from errors", bits=8),
    _port("link_downed", CounterKind.FAULT, "the link went down", bits=8),
    _port("port_rcv_errors", CounterKind.LOSS, "packets received with errors", bits=16),
    _port("port_xmit_discards", CounterKind.LOSS, "packets dropped before sending", bits=16),
    _port(
        "local_link_integrity_errors", CounterKind.LOSS, "too many errors on the local link", bits=4
    ),
    _port(
        "excessive_buffer_overrun_errors",
        CounterKind.LOSS,
        "the other end sent without credits",
        bits=4,
    ),
    _hw(
        "out_of_sequence",
        CounterKind.LOSS,
        "packets arrived out of order: one was lost, or they took different paths",
    ),
    _hw("packet_seq_err", CounterKind.LOSS, "the receiver reported a missing packet"),
    _hw("local_ack_timeout_err", CounterKind.LOSS, "acknowledgements timed out"),
    _hw("implied_nak_seq_err", CounterKind.LOSS, "an acknowledgement implied a lost packet"),
    _hw("roce_adp_retrans", CounterKind.LOSS, "adaptive retransmissions"),
    _hw(
        "roce_adp_retrans_to",
        CounterKind.LOSS,
        "adaptive retransmissions that reached their time limit",
    ),
    _hw("roce_slow_restart", CounterKind.LOSS, "slow restarts after loss"),
    _hw("rnr_nak_retry_err", CounterKind.LOSS, "the receiver was not ready: no buffer was posted"),
    _hw("out_of_buffer", CounterKind.LOSS, "packets dropped because no buffer was posted"),
    _hw("rx_icrc_encapsulated", CounterKind.LOSS, "RoCE packets with a checksum error"),
    _hw(
        "req_transport_retries_exceeded",
        CounterKind.FAULT,
        "a sender gave up: NCCL fails with error 12",
    ),
    _hw(
        "req_rnr_retries_exceeded",
        CounterKind.FAULT,
        "a sender gave up on a receiver that was never ready",
    ),
    _hw(
        "np_ecn_marked_roce_packets",
        CounterKind.CONGESTION,
        "packets arrived with a congestion mark from a switch",
        bits=64,
    ),
    _hw(
        "np_cnp_sent",
        CounterKind.CONGESTION,
        "congestion notifications sent to slow down remote senders",
        bits=64,
    ),
    _hw(
        "rp_cnp_handled",
        CounterKind.CONGESTION,
        "congestion notifications received: sending was slowed down",
        bits=64,
    ),
    _hw(
        "rp_cnp_ignored",
        CounterKind.CONGESTION,
        "congestion notifications ignored: congestion control is off",
        bits=64,
    ),
)

_INTERFACE = (
    Counter(
        "rx_bytes", Owner.INTERFACE, "/proc/net/dev", CounterKind.TRAFFIC, "data received", "bytes"
    ),
    Counter(
        "rx_errors",
        Owner.INTERFACE,
        "/proc/net/dev",
        CounterKind.LOSS,
        "packets received with errors",
    ),
    Counter(
        "rx_dropped",
        Owner.INTERFACE,
        "/proc/net/dev",
        CounterKind.LOSS,
        "packets received and dropped",
        notable=10,
    ),
    Counter(
        "rx_fifo_errors",
        Owner.INTERFACE,
        "/proc/net/dev",
        CounterKind.LOSS,
        "packets lost because the host fetched them too late",
    ),
    Counter(
        "tx_bytes", Owner.INTERFACE, "/proc/net/dev", CounterKind.TRAFFIC, "data sent", "bytes"
    ),
    Counter(
        "tx_errors",
        Owner.INTERFACE,
        "/proc/net/dev",
        CounterKind.LOSS,
        "packets that could not be sent",
    ),
    Counter(
        "tx_dropped",
        Owner.INTERFACE,
        "/proc/net/dev",
        CounterKind.LOSS,
        "packets dropped before sending",
    ),
    Counter(
        "carrier_down_count",
        Owner.INTERFACE,
        "/sys/class/net/*/carrier_down_count",
        CounterKind.FAULT,
        "the link went down",
    ),
)

_TCP = (
    _tcp("RetransSegs", CounterKind.LOSS, "segments retransmitted", file="snmp", notable=10),
    _tcp(
        "TCPTimeouts", CounterKind.LOSS, "retransmission timeouts: each at least 0.2 s by default"
    ),
    # A busy receiver also causes probes, so a few do not prove loss.
    _tcp(
        "TCPLossProbes",
        CounterKind.LOSS,
        "probes sent because acknowledgements were late",
        notable=100,
    ),
    _tcp("TCPFastRetrans", CounterKind.LOSS, "fast retransmissions", notable=10),
    _tcp("TCPSlowStartRetrans", CounterKind.LOSS, "retransmissions after a timeout", notable=10),
    _tcp("TCPRcvQDrop", CounterKind.LOSS, "segments dropped because the receive buffer was full"),
    _tcp("TCPBacklogDrop", CounterKind.LOSS, "segments dropped because the socket was busy"),
    _tcp("ListenDrops", CounterKind.LOSS, "connections refused by a full queue"),
    _tcp("TCPAbortOnTimeout", CounterKind.FAULT, "connections aborted after repeated timeouts"),
)

COUNTERS: tuple[Counter, ...] = _GPU + _RDMA + _INTERFACE + _TCP
BY_NAME: dict[str, Counter] = {counter.name: counter for counter in COUNTERS}


def counters_of(owner: Owner) -> tuple[Counter, ...]:
    """The counters of one owner, in the order of the table."""
    return tuple(counter for counter in COUNTERS if counter.owner is owner)
