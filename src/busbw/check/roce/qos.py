"""Quality of service of RoCE ports: trust mode, flow control and congestion control."""

from busbw.check.base import judged, not_offered, passed, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import (
    OFED,
    STAYS_AFTER_REBOOT,
    RoceInterface,
    hidden,
    listed,
    mask,
    nvidia,
    per_interface,
)
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.dcb import PRIORITIES
from busbw.host.ethtool import Pause, read_pause

OF_NVIDIA = "mlnx_qos -i {netdev} --trust dscp"
OF_OTHERS = "dcb app replace dev {netdev} dscp-prio DSCP:PRIORITY"

TRUST = CheckRow(
    id="BW090",
    name="roce-trust",
    layer=Layer.ROCE,
    title="trust mode of RoCE ports",
    right="dscp, since RoCE v2 is routed by IP",
    why=(
        "With pcp a port maps packets to priorities by VLAN tag. Untagged packets get priority 0,"
        " which has no flow control."
    ),
    fix=f"{OF_NVIDIA}; for NICs of other vendors: {OF_OTHERS}",
    stays=STAYS_AFTER_REBOOT,
    reads=("/sys/class/net/*/qos/trust", "dcb"),
    sources=(
        "NVIDIA DOCA-OFED, quality of service",
        "Linux drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c",
    ),
)
COMMON_PRIORITIES = (3,)


@per_interface(TRUST)
def check_trust(machine: Machine, setting: RoceInterface) -> Finding:
    qos = setting.qos  # with the kernel's driver a DSCP entry means that DSCP is trusted
    if not qos.trust:
        return unanswered(
            setting.subject,
            hidden(machine, f"the trust mode cannot be read: {qos.dcb}"),
            str(qos.dcb),
        )
    if qos.trust == "pcp" and qos.tagged:
        evidence = Evidence(qos.trust_where, qos.trust, "dscp, or a VLAN with a priority for RDMA")
        return not_offered(
            setting.subject,
            f"{qos.netdev} trusts pcp and has a VLAN, so the VLAN's egress map decides",
            evidence,
        )
    command = OF_NVIDIA if nvidia(machine, setting.port) else OF_OTHERS
    return judged(
        right=qos.trust == "dscp",
        subject=setting.subject,
        good=f"{qos.netdev} trusts DSCP",
        bad=f"{qos.netdev} trusts {qos.trust}: packets without a VLAN tag get priority 0",
        evidence=(Evidence(qos.trust_where, qos.trust, "dscp"),),
        fix=filled(command, netdev=qos.netdev),
    )


PFC = CheckRow(
    id="BW091",
    name="roce-pfc",
    layer=Layer.ROCE,
    title="priority flow control (PFC) of RoCE ports",
    right=(
        "on for the lossless priorities of the fabric (commonly 3), the same at both ends of the"
        " cable, and off for all others"
    ),
    why=(
        "Without PFC a full buffer drops RDMA packets. With PFC on all priorities one slow "
        "receiver stops all traffic on the path, and pauses spread."
    ),
    fix=(
        "mlnx_qos -i {netdev} --pfc 0,0,0,1,0,0,0,0; for NICs of other vendors: dcb pfc set dev"
        " {netdev} prio-pfc all:off 3:on"
    ),
    stays=STAYS_AFTER_REBOOT,
    reads=("dcb", "ethtool -a"),
    sources=("IEEE 802.1Qbb", "NVIDIA Network Operator, NIC configuration"),
)


@per_interface(PFC)
def check_pfc(machine: Machine, setting: RoceInterface) -> Finding:
    qos = setting.qos
    if qos.lossless is None:
        reason = (
            qos.dcb if isinstance(qos.dcb, str) else f"{qos.netdev}: its driver has no such value"
        )
        return unanswered(
            setting.subject, hidden(machine, f"flow control cannot be read: {reason}"), reason
        )
    evidence = Evidence(
        f"dcb {qos.netdev}",
        f"PFC on for {listed(qos.lossless)}",
        "the lossless priorities of the switch",
    )
    if nvidia(machine, setting.port):
        template = "mlnx_qos -i {netdev} --pfc {mask}"
        command = filled(template, netdev=qos.netdev, mask=mask(COMMON_PRIORITIES))
    else:
        template = f"dcb pfc set dev {{netdev}} prio-pfc all:off {COMMON_PRIORITIES[0]}:on"
        command = filled(template, netdev=qos.netdev)
    fix = f"{command}; or the lossless priorities of the switch instead"
    if not qos.lossless:
        pause = read_pause(machine, qos.netdev)
        consequence = "RoCE is lossy, which is right only on a lossy fabric"
        if isinstance(pause, Pause) and pause.rx and pause.tx:
            consequence = "global pause is on instead, and stops all traffic of the port"
        return warned(
            setting.subject,
            f"{qos.netdev} has no priority with flow control: {consequence}",
            evidence,
            fix=fix,
        )
    if len(qos.lossless) == PRIORITIES:
        message = (
            f"{qos.netdev} has flow control on all priorities: one slow receiver stops all traffic"
        )
        return warned(setting.subject, message, evidence, fix=fix)
    return passed(
        setting.subject, f"{qos.netdev} has flow control on {listed(qos.lossless)}", evidence
    )


ECN = CheckRow(
    id="BW092",
    name="roce-ecn",
    layer=Layer.ROCE,
    title="congestion control of RoCE ports",
    right=(
        "notification point (roce_np) and reaction point (roce_rp) are on for the priorities with"
        " flow control"
    ),
    why=(
        "Without it ECN marks do not slow senders down. Flow control alone holds data back, and"
        " pauses spread through the fabric."
    ),
    fix="echo 1 > /sys/class/net/{netdev}/ecn/{part}/enable/{priority}",
    stays=STAYS_AFTER_REBOOT,
    reads=("/sys/class/net/*/ecn/roce_{np,rp}/enable/*", "dcb"),
    sources=(
        "NVIDIA DOCA-OFED, explicit congestion notification",
        "NVIDIA Network Operator, NIC configuration",
    ),
)


@per_interface(ECN)
def check_ecn(machine: Machine, setting: RoceInterface) -> Finding:
    qos = setting.qos
    if qos.notify is None or qos.react is None:
        return not_offered(
            setting.subject,
            hidden(machine, f"/sys/class/net/{qos.netdev}/ecn cannot be read: {OFED}"),
        )
    parts = {"roce_np": qos.notify, "roce_rp": qos.react}
    lossless = qos.lossless or ()
    expected = listed(lossless) if lossless else "at least one"
    evidence = [
        Evidence(
            f"/sys/class/net/{qos.netdev}/ecn/{part}/enable/*", f"on for {listed(on)}", expected
        )
        for part, on in parts.items()
    ]
    missing = []
    for part, on in parts.items():
        missing += [(part, priority) for priority in lossless if priority not in on]
        if not lossless and not on:
            missing.append((part, min(qos.notify + qos.react, default=0)))
    if missing:
        part, priority = missing[0]
        effect = "ECN marks trigger no CNPs" if part == "roce_np" else "CNPs do not slow it down"
        fix = filled(ECN.fix, netdev=qos.netdev, part=part, priority=priority)
        return warned(
            setting.subject,
            f"{part} is off for priority {priority} on {qos.netdev}: {effect}",
            *evidence,
            fix=fix,
        )
    on_both = tuple(sorted(set(qos.notify) & set(qos.react)))
    which = "all priorities" if len(on_both) == PRIORITIES else f"priority {listed(on_both)}"
    return passed(setting.subject, f"{qos.netdev} has congestion control on {which}", *evidence)
