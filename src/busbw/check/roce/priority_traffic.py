"""Which priority RDMA traffic uses."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import STAYS, Setting, absent, listed, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.ethtool import statistics

ENOUGH = 10**9  # bytes
LEAST = 0.5
RDMA_BYTES, LOOPBACK = "tx_vport_rdma_unicast_bytes", "vport_loopback_bytes"

ROW = CheckRow(
    id="BW096",
    name="roce-priority-traffic",
    layer=Layer.ROCE,
    title="priorities that RDMA traffic used",
    right="priorities with flow control sent at least half as many bytes as RDMA did",
    why="RDMA on priority 0 means that its traffic class or the trust mode is wrong. It then has no flow control and loses packets.",
    fix="busbw check --only roce-trust --only roce-traffic-class names the setting; then mlnx_qos -i {netdev} shows the priority of "
    "each DSCP",
    stays=STAYS,
    reads=("ethtool -S: tx_prio*_bytes, tx_vport_rdma_unicast_bytes, vport_loopback_bytes", "dcb"),
    sources=("Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each hardware interface of a RoCE port, since its driver was loaded."""
    found = settings(machine)
    if not found:
        yield skipped(absent(machine))
    for setting in found:
        yield _judge(machine, setting)


def _judge(machine: Machine, setting: Setting) -> Found:
    netdev, lossless = setting.qos.netdev, setting.qos.lossless
    values = statistics(machine, netdev)
    if lossless == ():
        return skipped("no priority has flow control", setting.subject)
    if lossless is None or isinstance(values, str) or RDMA_BYTES not in values or "tx_prio0_bytes" not in values:
        reason = values if isinstance(values, str) else "flow control" if lossless is None else "its driver does not count them"
        message = f"bytes by priority cannot be read: {reason}"
        return unanswered(setting.subject, message, reason) if isinstance(values, str) else not_offered(setting.subject, message)
    rdma = values[RDMA_BYTES] - values.get(LOOPBACK, 0)
    if rdma < ENOUGH:
        return skipped(f"RDMA sent less than {ENOUGH / 1e9:g} GB since the driver was loaded", setting.subject)
    sent = {priority: values.get(f"tx_prio{priority}_bytes", 0) for priority in range(8)}
    kept = sum(sent[priority] for priority in lossless)
    most = max(sent, key=lambda priority: sent[priority])
    evidence = (
        Evidence(f"ethtool -S {netdev}: {RDMA_BYTES}", str(values[RDMA_BYTES])),
        Evidence(f"ethtool -S {netdev}: tx_prio{most}_bytes", str(sent[most]), f"most on {listed(lossless)}"),
    )
    if kept < LEAST * rdma:
        message = f"RDMA sent {rdma / 1e9:.1f} GB, at most {kept / 1e9:.1f} GB of it with flow control; most used priority {most}"
        return warned(setting.subject, message, *evidence, fix=filled(ROW.fix, netdev=netdev))
    return passed(setting.subject, f"RDMA sent {rdma / 1e9:.1f} GB; priority {listed(lossless)} carried {kept / 1e9:.1f} GB", *evidence)


CHECK = Check(ROW, look)
