"""The trust mode, by which RoCE ports map packets to priorities."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, not_offered, skipped, unanswered
from busbw.check.machine import Machine
from busbw.check.roce.settings import STAYS, absent, hidden, nvidia, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

OF_NVIDIA, OF_OTHERS = "mlnx_qos -i {netdev} --trust dscp", "dcb app replace dev {netdev} dscp-prio DSCP:PRIORITY"

ROW = CheckRow(
    id="BW090",
    name="roce-trust",
    layer=Layer.ROCE,
    title="trust mode of RoCE ports",
    right="dscp, since RoCE v2 is routed by IP",
    why="With pcp a port maps packets to priorities by VLAN tag. Untagged packets get priority 0, which has no flow control.",
    fix=f"{OF_NVIDIA}; for NICs of other vendors: {OF_OTHERS}",
    stays=STAYS,
    reads=("/sys/class/net/*/qos/trust", "dcb"),
    sources=("NVIDIA DOCA-OFED, quality of service", "Linux drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each hardware interface of a RoCE port. With the kernel's driver a DSCP entry means that DSCP is trusted."""
    found = settings(machine)
    if not found:
        yield skipped(absent(machine))
    for setting in found:
        qos = setting.qos
        if not qos.trust:
            yield unanswered(setting.subject, hidden(machine, f"the trust mode cannot be read: {qos.dcb}"), str(qos.dcb))
            continue
        if qos.trust == "pcp" and qos.tagged:
            seen = Evidence(qos.trust_where, qos.trust, "dscp, or a VLAN with a priority for RDMA")
            yield not_offered(setting.subject, f"{qos.netdev} trusts pcp and has a VLAN, so the VLAN's egress map decides", seen)
            continue
        command = OF_NVIDIA if nvidia(machine, setting.port) else OF_OTHERS
        yield judged(
            right=qos.trust == "dscp",
            subject=setting.subject,
            good=f"{qos.netdev} trusts DSCP",
            bad=f"{qos.netdev} trusts {qos.trust}: packets without a VLAN tag get priority 0",
            evidence=(Evidence(qos.trust_where, qos.trust, "dscp"),),
            fix=filled(command, netdev=qos.netdev),
        )


CHECK = Check(ROW, look)
