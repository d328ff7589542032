"""The traffic class of RDMA packets, and the priorities that they used."""

from busbw.check.base import broken, not_offered, passed, skipped, unanswered, unread, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import VARIABLE_SOURCES
from busbw.check.roce.settings import (
    STAYS_AFTER_REBOOT,
    RoceInterface,
    listed,
    per_interface,
    sent_class,
)
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.ethtool import statistics
from busbw.host.roce_qos import decoded, traffic_class_path

TRAFFIC_CLASS = CheckRow(
    id="BW095",
    name="roce-traffic-class",
    layer=Layer.ROCE,
    title="traffic class of NCCL's packets",
    right="its DSCP maps to a priority with flow control",
    why=(
        "NCCL uses traffic class 0 unless NCCL_IB_TC or the driver sets another. Packets outside "
        "the lossless class are dropped when buffers are full."
    ),
    fix=(
        "echo {value} > /sys/class/infiniband/{device}/tc/{port}/traffic_class; or in the job"
        " script: export NCCL_IB_TC={value}"
    ),
    stays=STAYS_AFTER_REBOOT,
    reads=(
        "/sys/class/infiniband/*/tc/*/traffic_class",
        *VARIABLE_SOURCES,
        "dcb",
        "/sys/class/net/*/qos/trust",
    ),
    sources=("NCCL user guide, NCCL_IB_TC", "NVIDIA DOCA-OFED, quality of service"),
)
MIN_RDMA_BYTES = 10**9  # bytes
MIN_LOSSLESS_SHARE = 0.5
RDMA_BYTES, LOOPBACK = "tx_vport_rdma_unicast_bytes", "vport_loopback_bytes"


@per_interface(TRAFFIC_CLASS)
def check_traffic_class(machine: Machine, setting: RoceInterface) -> Finding:
    qos, port = setting.qos, setting.port
    port_class = machine.read(traffic_class_path(port.device, port.number))
    if broken(port_class):
        return unread(setting.subject, port_class, "the traffic class")
    value, where = sent_class(machine, port)
    if value is None:
        return not_offered(
            setting.subject,
            "the traffic class is unknown: neither the driver nor the snapshot's environment"
            " has it",
        )
    priority, lossless = qos.priority(value), qos.lossless
    evidence = Evidence(
        where, decoded(value), f"one with priority {listed(lossless)}" if lossless else ""
    )
    if lossless == ():
        return skipped(
            f"traffic class {decoded(value)}; no priority has flow control", setting.subject
        )
    if lossless is None or priority is None:
        noun = "flow control" if lossless is None else f"the priority of DSCP {value >> 2}"
        return not_offered(
            setting.subject, f"traffic class {decoded(value)}; {noun} cannot be read", evidence
        )
    mapped = Evidence(qos.trust_where, f"{qos.trust}: priority {priority}", listed(lossless))
    if priority in lossless:
        return passed(
            setting.subject,
            f"traffic class {decoded(value)} has priority {priority}, which is lossless",
            evidence,
            mapped,
        )
    fix = filled(
        TRAFFIC_CLASS.fix, value=_lossless_class(setting), device=port.device, port=port.number
    )
    message = f"traffic class {decoded(value)} has priority {priority}, which has no flow control"
    return warned(setting.subject, message, evidence, mapped, fix=fix)


def _lossless_class(setting: RoceInterface) -> str:
    """A traffic class with a lossless priority and ECN; the word CLASS if none is known."""
    dcb, lossless = setting.qos.dcb, setting.qos.lossless or ()
    known = {} if isinstance(dcb, str) else dcb.dscp
    return next(
        (str(dscp << 2 | 2) for dscp, priority in sorted(known.items()) if priority in lossless),
        "CLASS",
    )


PRIORITY_TRAFFIC = CheckRow(
    id="BW096",
    name="roce-priority-traffic",
    layer=Layer.ROCE,
    title="priorities that RDMA traffic used",
    right="priorities with flow control sent at least half as many bytes as RDMA did",
    why=(
        "RDMA on priority 0 means that its traffic class or the trust mode is wrong. It then has no"
        " flow control and loses packets."
    ),
    fix=(
        "busbw check --only roce-trust --only roce-traffic-class names the setting; then "
        "mlnx_qos -i {netdev} shows the priority of each DSCP"
    ),
    stays=STAYS_AFTER_REBOOT,
    reads=("ethtool -S: tx_prio*_bytes, tx_vport_rdma_unicast_bytes, vport_loopback_bytes", "dcb"),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)


@per_interface(PRIORITY_TRAFFIC)
def check_priority_traffic(machine: Machine, setting: RoceInterface) -> Finding:
    netdev, lossless = setting.qos.netdev, setting.qos.lossless
    values = statistics(machine, netdev)
    if lossless == ():
        return skipped("no priority has flow control", setting.subject)
    unread = "bytes by priority cannot be read"
    if isinstance(values, str):
        return unanswered(setting.subject, f"{unread}: {values}", values)
    if lossless is None:
        return not_offered(setting.subject, f"{unread}: flow control")
    if RDMA_BYTES not in values or "tx_prio0_bytes" not in values:
        return not_offered(setting.subject, f"{unread}: its driver does not count them")
    rdma = values[RDMA_BYTES] - values.get(LOOPBACK, 0)
    if rdma < MIN_RDMA_BYTES:
        return skipped(
            f"RDMA sent less than {MIN_RDMA_BYTES / 1e9:g} GB since the driver was loaded",
            setting.subject,
        )
    sent = {priority: values.get(f"tx_prio{priority}_bytes", 0) for priority in range(8)}
    lossless_bytes = sum(sent[priority] for priority in lossless)
    busiest = max(sent, key=sent.__getitem__)
    evidence = (
        Evidence(f"ethtool -S {netdev}: {RDMA_BYTES}", str(values[RDMA_BYTES])),
        Evidence(
            f"ethtool -S {netdev}: tx_prio{busiest}_bytes",
            str(sent[busiest]),
            f"most on {listed(lossless)}",
        ),
    )
    sent_gb = f"RDMA sent {rdma / 1e9:.1f} GB"
    if lossless_bytes < MIN_LOSSLESS_SHARE * rdma:
        message = (
            f"{sent_gb}, at most {lossless_bytes / 1e9:.1f} GB of it with flow control;"
            f" most used priority {busiest}"
        )
        fix = filled(PRIORITY_TRAFFIC.fix, netdev=netdev)
        return warned(setting.subject, message, *evidence, fix=fix)
    carried = f"priority {listed(lossless)} carried {lossless_bytes / 1e9:.1f} GB"
    return passed(setting.subject, f"{sent_gb}; {carried}", *evidence)
