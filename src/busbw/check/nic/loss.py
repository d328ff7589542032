"""Packets that ports dropped, held back or sent again."""

import re
from collections.abc import Iterator, Sequence
from statistics import median

from busbw.check.base import check, not_offered, passed, warned
from busbw.check.machine import Machine, RdmaPort
from busbw.check.nic.links import (
    MAX_LOSS_SHARE,
    cabled,
    counter_evidence,
    counts,
    each_port,
    per_port,
    total,
)
from busbw.check.rates import (
    HOUR_S,
    RATE_UNKNOWN,
    SINCE_DRIVER_LOADED,
    Count,
    Window,
    too_fast,
    window,
)
from busbw.check.shell_words import filled
from busbw.check.types import Finding
from busbw.core.finding import CheckRow, Layer

DROPPED = "[rt]x_discards_phy|port_xmit_discards"
PACKETS = "[rt]x_packets_phy|port_xmit_packets|port_rcv_packets"
OVERSIZE = "rx_oversize_pkts_phy"
PACKET_FILES = (
    "counters/port_xmit_discards",
    "counters/port_xmit_packets",
    "counters/port_rcv_packets",
)
INFINIBAND_FIX = (
    "ibdiagnet names the congested switch port; the log of the subnet manager shows whether a "
    "host hung; as root, which sets the counters to 0: perfquery -C {device} -P {port} -R"
)

DISCARDS = CheckRow(
    id="BW079",
    name="nic-discards",
    layer=Layer.NIC,
    title="packets that ports dropped",
    right=(
        f"at most {MAX_LOSS_SHARE:g} of the packets, and none for their size, between two readings "
        "(--watch-for, --since) or since the driver "
        "was loaded"
    ),
    why=(
        "RDMA retransmits a lost packet and every packet after it. Received packets are dropped "
        "if their class has no flow control, or if they are larger than the MTU."
    ),
    fix=(
        "enable flow control for the RDMA priority, on the switch too: mlnx_qos -i {netdev} "
        "--pfc 0,0,0,1,0,0,0,0; for oversize packets, set the same MTU at both ends"
    ),
    stays=(
        "after reboot: lost; a systemd unit or the NIC Configuration Operator keeps it; the"
        " counters restart when the driver is loaded"
    ),
    reads=(
        (
            "ethtool -S: rx_discards_phy, tx_discards_phy, rx_packets_phy, tx_packets_phy,"
            " rx_oversize_pkts_phy"
        ),
        (
            "/sys/class/infiniband/*/ports/*/counters/"
            "{port_xmit_discards,port_xmit_packets,port_rcv_packets}"
        ),
    ),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)
STALLED_PERCENT = "outbound_pci_stalled_(rd|wr)"
STALL_EVENTS = "outbound_pci_stalled_(rd|wr)_events"
OVERFLOWS = "outbound_pci_buffer_overflow"
MAX_STALLED_PERCENT = 30  # the driver's own limit for an event
# Allowed in total, and of the time between two readings
MAX_STALLED_S, MAX_STALLED_SHARE = 60, 1e-3
WATCH = "while a job runs: busbw check --only nic-pci-stalls --watch-for 60"
GAVE_UP = ("req_transport_retries_exceeded", "req_rnr_retries_exceeded")
MIN_LOST_CONNECTIONS = 10  # above the median of the ports
OTHER_SIGNS = ("out_of_sequence", "out_of_buffer", "rnr_nak_retry_err")
PACKET_COUNTERS = ("port_xmit_packets", "port_rcv_packets")


@per_port(DISCARDS, PACKET_FILES, f"{DROPPED}|{PACKETS}|{OVERSIZE}")
def check_discards(machine: Machine, port: RdmaPort, counters: list[Count]) -> Finding:
    drop_counters = ("rx_discards", "tx_discards", "port_xmit_discards")
    if not any(count.name.startswith(drop_counters) for count in counters):
        return not_offered(port.name, "its driver does not count dropped packets")
    recent = window(machine, counters)
    values, since = recent.counts, recent.since
    if not _packets(values):  # the time of an idle port shows nothing
        values, since = tuple(counters), SINCE_DRIVER_LOADED
    dropped, large, packets = total(values, DROPPED), total(values, OVERSIZE), _packets(values)
    evidence = counter_evidence(counters, f"{DROPPED}|{OVERSIZE}")
    saturated = [count.name for count in counters if count.saturated]
    message = f"{dropped} of {packets} packets dropped {since}"
    if large:
        message += f", {large} that are larger than its MTU"
    if saturated:
        message += (
            f"; {saturated[0]} is at the most that it can hold, and later drops are not counted"
        )
    if large or saturated or dropped > MAX_LOSS_SHARE * packets:
        fix = filled(INFINIBAND_FIX, device=port.device, port=port.number)
        if port.roce:
            fix = filled(DISCARDS.fix, netdev=port.netdev or "INTERFACE")
        return warned(port.name, message, *evidence, fix=fix, weight=dropped + large)
    return passed(port.name, message, *evidence)


def _packets(counters: Sequence[Count]) -> int:
    """The number of packets: the port and its interface count the same ones."""
    of_interface = total(counters, "[rt]x_packets_phy")
    of_port = total(counters, "port_xmit_packets|port_rcv_packets")
    return max(of_interface, of_port)


PCI_STALLS = CheckRow(
    id="BW081",
    name="nic-pci-stalls",
    layer=Layer.NIC,
    title="ports that stall on PCIe",
    right=(
        f"a port stalls for more than {MAX_STALLED_PERCENT} % of a second in at most"
        f" {MAX_STALLED_SHARE:.1%} of the time between two readings (--watch-for, --since);"
        f" not judged with one reading from {MAX_STALLED_S} s on"
    ),
    why=(
        "The port has data for memory, but PCIe does not take it: slot width or speed, ACS, "
        "IOMMU, or small reads. The port then pauses the switch, and so other hosts."
    ),
    fix=(
        "lspci -s {bdf} -vv: width and speed (LnkSta), MaxReadReq; busbw check shows faults on its"
        " PCIe path"
    ),
    stays="BIOS settings stay; setpci is lost at the next reboot",
    reads=(
        (
            "ethtool -S: outbound_pci_stalled_{rd,wr}, outbound_pci_stalled_{rd,wr}_events,"
            " outbound_pci_buffer_overflow"
        ),
    ),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)


@per_port(PCI_STALLS, (), f"{STALLED_PERCENT}|{STALL_EVENTS}|{OVERFLOWS}")
def check_pci_stalls(machine: Machine, port: RdmaPort, counters: list[Count]) -> Finding:
    now = max(
        (count.value for count in counters if re.fullmatch(STALLED_PERCENT, count.name)), default=0
    )
    recent = window(
        machine, [count for count in counters if not re.fullmatch(STALLED_PERCENT, count.name)]
    )
    stalled, lost = total(recent.counts, STALL_EVENTS), total(recent.counts, OVERFLOWS)
    message = (
        f"it stalled in {stalled} s {recent.since}, and for {now} % of the last second; {lost}"
        " packets lost to this"
    )
    fix = filled(PCI_STALLS.fix, bdf=port.bdf or port.device)
    often = (
        too_fast(stalled, recent.seconds, MAX_STALLED_SHARE * HOUR_S) if recent.seconds else False
    )
    if now > MAX_STALLED_PERCENT or lost or often:
        return warned(
            port.name, message, *counter_evidence(counters), fix=fix, weight=stalled + lost
        )
    if recent.seconds is None and stalled >= MAX_STALLED_S:
        return not_offered(
            port.name, f"{message}; {RATE_UNKNOWN}", *counter_evidence(counters), fix=WATCH
        )
    return passed(port.name, message, *counter_evidence(counters))


# Adaptive routing reorders packets without loss, so out_of_sequence alone means nothing.
RESEND_COUNTERS = (
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "roce_adp_retrans",
    "rx_icrc_encapsulated",
)

RETRANSMISSIONS = CheckRow(
    id="BW082",
    name="nic-retransmissions",
    layer=Layer.NIC,
    title="RDMA retransmissions",
    right=(
        f"at most {MAX_LOSS_SHARE:g} of the packets, and fewer than {MIN_LOST_CONNECTIONS}"
        " connections that gave up, above the median of this host's ports, between two readings"
        " (--watch-for, --since) or since the driver was loaded"
    ),
    why=(
        "Packets were lost on the path. RDMA retransmits them and every packet after them. After"
        " seven retries NCCL fails with error 12."
    ),
    fix=(
        "check flow control and ECN on the path of {device} (roce-pfc, roce-ecn) and its cable"
        " (nic-ber); busbw watch shows when it rises"
    ),
    stays="depends on the cause; the counters restart when the driver is loaded and wrap at 2^32",
    reads=(
        f"/sys/class/infiniband/*/ports/*/hw_counters/"
        f"{{{','.join((*RESEND_COUNTERS, *GAVE_UP, *OTHER_SIGNS))}}}",
        f"/sys/class/infiniband/*/ports/*/counters/{{{','.join(PACKET_COUNTERS)}}}",
    ),
    sources=("Linux drivers/infiniband/hw/mlx5/counters.c", "NCCL user guide, troubleshooting"),
)


@check(RETRANSMISSIONS)
def check_retransmissions(machine: Machine) -> Iterator[Finding]:
    files = [f"hw_counters/{name}" for name in (*GAVE_UP, *RESEND_COUNTERS, *OTHER_SIGNS)]
    files += [f"counters/{name}" for name in PACKET_COUNTERS]
    lost = []
    for port in cabled(machine):
        counters = counts(machine, port, files, "")
        if not isinstance(counters, str):
            lost.append(total(window(machine, counters).counts, "|".join(GAVE_UP)))
    # A killed job leaves connections of its remote ranks unanswered, equally on all ports.
    common = median(lost) if len(lost) > 2 else 0

    def judge(port: RdmaPort, counters: list[Count]) -> Finding:
        return _judge_retransmissions(port, window(machine, counters), common)

    yield from each_port(machine, files, "", judge)


def _judge_retransmissions(port: RdmaPort, recent: Window, common: float) -> Finding:
    counters, names = recent.counts, {count.name for count in recent.counts}
    if not names & set(RESEND_COUNTERS):
        return not_offered(port.name, "its driver does not count retransmissions")
    retransmissions, gave_up = (
        total(counters, "|".join(RESEND_COUNTERS)),
        total(counters, "|".join(GAVE_UP)),
    )
    packets = total(counters, "|".join(PACKET_COUNTERS))
    evidence = counter_evidence(counters, "|".join((*GAVE_UP, *RESEND_COUNTERS, *OTHER_SIGNS)))
    packets_counted = bool(names & set(PACKET_COUNTERS))
    message = f"{retransmissions} retransmission events {recent.since}"
    message += f" in {packets} packets" if packets_counted else "; packets are not counted"
    fix = filled(RETRANSMISSIONS.fix, device=port.device)
    if gave_up - common >= MIN_LOST_CONNECTIONS:
        on_others = f"; the median of this host's ports is {common:g}" if common else ""
        return warned(
            port.name,
            f"{gave_up} times a connection gave up {recent.since}{on_others}",
            *evidence,
            fix=fix,
            weight=gave_up,
        )
    message += f"; {gave_up} connections gave up, as when a job is killed" if gave_up else ""
    if retransmissions and not packets_counted:
        return not_offered(port.name, message, *evidence)
    if retransmissions > MAX_LOSS_SHARE * packets:
        return warned(port.name, message, *evidence, fix=fix, weight=retransmissions)
    return passed(port.name, message, *evidence)
