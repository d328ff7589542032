"""Counter patterns and what they mean for a link, one row each.

`judge` takes flows over about a second and returns the patterns that match. A pattern whose
counters cannot be read never matches. For the meaning of the counters see
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst in the Linux sources.
"""

from collections.abc import Callable
from dataclasses import dataclass

from busbw.core.counters import NOTABLE_CREDIT_SHARE, credit_share
from busbw.core.finding import Verdict
from busbw.core.link_samples import IB, LinkFinding, LinkFlow, per_second
from busbw.core.watch_counters import PRIORITIES
from busbw.model.rates import DOWN, GONE, PAUSES, total
from busbw.ui.number_formats import bandwidth_text

MIN_PAUSED_SHARE = 0.01  # of the time: fewer pauses cost less than measurement noise
STALLED_PERCENT = 10  # of the last second
FULL_RATE_SHARE = 0.9  # of the line rate
# Share of the received bits. Limits from 1e-7 up are in use; this one also suits links that
# normally correct many bits.
BIT_ERRORS = 1e-5
RARE_CNP_PER_S = 1.0  # notifications per second: practically none
RDMA_BYTES = 10e6  # per second: below it, another priority's share is not measurable
HALF_SHARE = 0.5
RESEND_COUNTERS = (
    "packet_seq_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "roce_adp_retrans",
    "retrans_pkts",
)
CLASS_DROPS = tuple(
    f"rx_prio{number}_{event}"
    for number in PRIORITIES
    for event in ("discards", "buf_discard", "cong_discard")
)
FAIL, WARN = Verdict.FAIL, Verdict.WARN


@dataclass(frozen=True, slots=True)
class Symptom:
    """A pattern and its message.

    `reads` are the counters and levels used, none for the state of a link. `evidence` returns the
    values behind the message, '' if the flow does not match.
    """

    name: str
    verdict: Verdict
    message: str
    reads: tuple[str, ...]
    evidence: Callable[[LinkFlow], str]


def judge(flows: list[LinkFlow]) -> list[LinkFinding]:
    """The patterns that match, link by link in the order of PATTERNS.

    `flows` cover about one second, like the levels in them.
    """
    matches = []
    for flow in flows:
        for pattern in PATTERNS:
            if flow.state == GONE and pattern.name != "gone":
                continue
            evidence = pattern.evidence(flow)
            if evidence:
                matches.append(
                    LinkFinding(flow.name, pattern.name, pattern.verdict, pattern.message, evidence)
                )
    return matches


def _show_rising(*names: str) -> Callable[[LinkFlow], str]:
    """A function that shows which of these counters increase, and their rates."""
    return lambda flow: ", ".join(
        f"{name} {per_second(flow.counters[name])}/s"
        for name in names
        if flow.counters.get(name, 0) > 0
    )


def _show_pause(flow: LinkFlow, side: str) -> str:
    """The priority that is paused for longest, if its pauses matter."""
    share = flow.tx_pause if side == "tx" else flow.rx_pause
    if share is None or share < MIN_PAUSED_SHARE:
        return ""
    names = [name for name in PAUSES[side] if name in flow.counters]
    name = max(names, key=lambda name: flow.counters[name])
    return f"{name} {100 * share:.0f} % of the time"


def _show_pauses_without_ecn(flow: LinkFlow) -> str:
    paused, sent, handled = _show_pause(flow, "rx"), flow.cnp_sent, flow.cnp_handled
    if not paused or sent is None or handled is None or max(sent, handled) >= RARE_CNP_PER_S:
        return ""
    return f"{paused}, np_cnp_sent {sent:.0f}/s, rp_cnp_handled {handled:.0f}/s"


def _show_slowing(flow: LinkFlow) -> str:
    """Congestion notifications that slow a sender although nothing pauses it."""
    if flow.cnp_handled is None or flow.cnp_handled < RARE_CNP_PER_S:
        return ""
    if flow.rx_pause is None or flow.rx_pause >= MIN_PAUSED_SHARE:
        return ""
    if flow.rate is None or flow.tx is None or flow.tx >= FULL_RATE_SHARE * flow.rate:
        return ""
    sent = 100 * flow.tx / (flow.rate or 1)
    return (
        f"rp_cnp_handled {flow.cnp_handled:,.0f}/s, rx pauses {100 * flow.rx_pause:.1f} %,"
        f" sent {sent:.0f} % of the rate"
    )


def _show_stalls(flow: LinkFlow, side: str) -> str:
    name = f"outbound_pci_stalled_{side}"
    percent = flow.counters.get(name, 0)
    return f"{name} {percent:.0f} %" if percent >= STALLED_PERCENT else ""


def _show_pcie_limit(flow: LinkFlow) -> str:
    paused, stalled = _show_pause(flow, "tx"), _show_stalls(flow, "wr")
    return f"{paused}, {stalled}" if paused and stalled else ""


def _show_slow_receiver(flow: LinkFlow) -> str:
    paused = _show_pause(flow, "tx")
    if not paused or _show_stalls(flow, "wr"):
        return ""
    stalled = flow.counters.get("outbound_pci_stalled_wr")
    return paused if stalled is None else f"{paused}, outbound_pci_stalled_wr {stalled:.0f} %"


def _show_bit_errors(flow: LinkFlow) -> str:
    bits = flow.counters.get("rx_bits_phy")
    corrected = flow.counters.get("rx_corrected_bits_phy")
    if not bits or corrected is None or corrected / bits <= BIT_ERRORS:
        return ""
    return f"{corrected / bits:.1e} of the bits received were corrected"


def _show_credit_waits(flow: LinkFlow) -> str:
    """The time without credits, if it is a notable share of all time."""
    ticks = flow.counters.get("port_xmit_wait")
    if flow.kind != IB or ticks is None or not flow.rate:
        return ""
    share = credit_share(ticks, flow.rate)
    if share < NOTABLE_CREDIT_SHARE:
        return ""
    return f"port_xmit_wait {ticks:,.0f} ticks/s: at least {100 * share:.0f} % of the time"


def _show_wrong_class(flow: LinkFlow) -> str:
    """RDMA data that only priority 0 can have carried."""
    rdma = flow.counters.get("tx_vport_rdma_unicast_bytes", flow.counters.get("port_xmit_data"))
    names = [f"tx_prio{number}_bytes" for number in PRIORITIES]
    default = flow.counters.get(names[0])
    others = total(flow.counters, names[1:])
    if rdma is None or default is None or others is None or rdma < RDMA_BYTES:
        return ""
    if others > HALF_SHARE * rdma or default < HALF_SHARE * rdma:
        return ""
    return f"tx_prio0_bytes {bandwidth_text(default)} GB/s, RDMA {bandwidth_text(rdma)} GB/s"


def _rise(name: str, verdict: Verdict, message: str, *counters: str) -> Symptom:
    """A pattern that matches any increase of these counters."""
    return Symptom(name, verdict, message, counters, _show_rising(*counters))


PATTERNS: tuple[Symptom, ...] = (
    Symptom(
        "gone",
        FAIL,
        "the port is gone",
        (),
        lambda flow: "it is not listed now" if flow.state == GONE else "",
    ),
    Symptom(
        "down",
        WARN,
        "the port is down",
        ("state", "operational"),
        lambda flow: "its state is not up" if flow.state == DOWN else "",
    ),
    _rise(
        "link-lost",
        FAIL,
        "the link went down: cable, optic, or the other end",
        "link_downed",
        "link_down_events_phy",
        "carrier_down_count",
    ),
    _rise(
        "link-recovered",
        WARN,
        "the link retrained after errors",
        "link_error_recovery",
        "nvlink_recovery",
    ),
    _rise(
        "gave-up",
        FAIL,
        "a sender gave up: NCCL ends with error 12 (no answer) or 13 (receiver not ready)",
        "req_transport_retries_exceeded",
        "req_rnr_retries_exceeded",
    ),
    _rise(
        "no-answer",
        FAIL,
        "the other end does not respond: NCCL ends with a network error",
        "unresponsive_remote_events",
    ),
    Symptom(
        "pcie-limit",
        WARN,
        "the receiver's PCIe is the limit: check its generation and width, ACS and the IOMMU",
        (*PAUSES["tx"], "outbound_pci_stalled_wr"),
        _show_pcie_limit,
    ),
    Symptom(
        "slow-receiver",
        WARN,
        "this port cannot keep up with what arrives, and the PCIe counters do not show why",
        (*PAUSES["tx"], "outbound_pci_stalled_wr"),
        _show_slow_receiver,
    ),
    Symptom(
        "reads-stalled",
        WARN,
        "the NIC waits for reads of host memory: check ATS, the IOMMU and MaxReadReq",
        ("outbound_pci_stalled_rd",),
        lambda flow: _show_stalls(flow, "rd"),
    ),
    _rise(
        "pci-overflow",
        WARN,
        "packets are dropped because PCIe cannot take them",
        "outbound_pci_buffer_overflow",
    ),
    Symptom(
        "pfc-without-ecn",
        WARN,
        "pauses without congestion notifications: DCQCN is off, or switches mark later than they"
        " pause",
        (*PAUSES["rx"], "np_cnp_sent", "rp_cnp_handled"),
        _show_pauses_without_ecn,
    ),
    _rise(
        "pause-storm",
        WARN,
        "this port paused the other end for a long time: its NIC or host accepts no data",
        "tx_pause_storm_warning_events",
        "tx_pause_storm_error_events",
    ),
    Symptom(
        "congestion-control",
        WARN,
        "congestion control slows this sender: many senders to one receiver, or a slow receiver",
        ("rp_cnp_handled", *PAUSES["rx"]),
        _show_slowing,
    ),
    _rise(
        "ecn-off",
        WARN,
        "congestion notifications are ignored: ECN is off on this port",
        "rp_cnp_ignored",
    ),
    _rise(
        "lossy-class",
        WARN,
        "the traffic class of the data is lossy: it has no PFC",
        "rx_discards_phy",
        *CLASS_DROPS,
    ),
    _rise(
        "loss",
        WARN,
        "packets are lost and retransmitted; if this continues, a sender gives up and NCCL ends"
        " with an error",
        *RESEND_COUNTERS,
    ),
    Symptom(
        "out-of-order",
        WARN,
        "packets arrive out of order: normal with adaptive routing, otherwise loss",
        ("out_of_sequence", *RESEND_COUNTERS),
        lambda flow: (
            "" if _show_rising(*RESEND_COUNTERS)(flow) else _show_rising("out_of_sequence")(flow)
        ),
    ),
    _rise(
        "no-receive",
        WARN,
        "buffers are posted too late: out_of_buffer at this end, rnr_nak_retry_err at the other",
        "rnr_nak_retry_err",
        "out_of_buffer",
    ),
    Symptom(
        "cable",
        WARN,
        "many bit errors: cable or optic",
        ("rx_corrected_bits_phy", "rx_bits_phy"),
        _show_bit_errors,
    ),
    _rise(
        "symbol-errors",
        WARN,
        "errors of the physical link: cable or optic",
        "symbol_error",
        "rx_symbol_err_phy",
        "rx_pcs_symbol_err_phy",
        "port_rcv_errors",
        "local_link_integrity_errors",
    ),
    _rise(
        "bad-checksums",
        WARN,
        "packets arrive with bad checksums: cable, optic, or a device on the path",
        "rx_crc_errors_phy",
        "rx_icrc_encapsulated",
    ),
    _rise(
        "oversize",
        WARN,
        "packets exceed the MTU: the other end's MTU is larger",
        "rx_oversize_pkts_phy",
    ),
    _rise(
        "module",
        WARN,
        "the optical module or its cable reports a fault",
        "module_high_temp",
        "module_bus_stuck",
        "module_bad_shorted",
    ),
    Symptom(
        "credits",
        WARN,
        "data waits for credits: the congestion is further along the path",
        ("port_xmit_wait",),
        _show_credit_waits,
    ),
    Symptom(
        "wrong-class",
        WARN,
        "RDMA data is on priority 0, which usually has no PFC: check ToS, traffic class and trust",
        (
            "tx_vport_rdma_unicast_bytes",
            "port_xmit_data",
            *(f"tx_prio{number}_bytes" for number in PRIORITIES),
        ),
        _show_wrong_class,
    ),
    _rise(
        "nvlink-errors",
        WARN,
        "NVLink retransmits data",
        "nvlink_replay",
        "nvlink_crc_flit",
        "nvlink_crc_data",
    ),
    _rise(
        "pcie-errors",
        WARN,
        "PCIe retransmits packets",
        "pcie_replay",
        "rx_pci_signal_integrity",
        "tx_pci_signal_integrity",
    ),
)
