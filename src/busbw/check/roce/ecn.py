"""Congestion control of RoCE ports (DCQCN)."""

from collections.abc import Iterator

from busbw.check.base import Check, not_offered, passed, skipped, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import OFED, STAYS, Setting, absent, hidden, listed, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.dcb import PRIORITIES

ROW = CheckRow(
    id="BW092",
    name="roce-ecn",
    layer=Layer.ROCE,
    title="congestion control of RoCE ports",
    right="notification point (roce_np) and reaction point (roce_rp) are on for the priorities with flow control",
    why="Without it ECN marks do not slow senders down. Flow control alone holds data back, and pauses spread through the fabric.",
    fix="echo 1 > /sys/class/net/{netdev}/ecn/{part}/enable/{priority}",
    stays=STAYS,
    reads=("/sys/class/net/*/ecn/roce_{np,rp}/enable/*", "dcb"),
    sources=("NVIDIA DOCA-OFED, explicit congestion notification", "NVIDIA Network Operator, NIC configuration"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each hardware interface of a RoCE port."""
    found = settings(machine)
    if not found:
        yield skipped(absent(machine))
    for setting in found:
        yield _judge(machine, setting)


def _judge(machine: Machine, setting: Setting) -> Found:
    qos = setting.qos
    if qos.notify is None or qos.react is None:
        return not_offered(setting.subject, hidden(machine, f"/sys/class/net/{qos.netdev}/ecn cannot be read: {OFED}"))
    parts = {"roce_np": qos.notify, "roce_rp": qos.react}
    wanted = qos.lossless or ()
    expected = listed(wanted) if wanted else "at least one"
    seen = [Evidence(f"/sys/class/net/{qos.netdev}/ecn/{part}/enable/*", f"on for {listed(on)}", expected) for part, on in parts.items()]
    missing = [(part, priority) for part, on in parts.items() for priority in wanted if priority not in on]
    if not wanted:
        missing = [(part, min(qos.notify + qos.react, default=0)) for part, on in parts.items() if not on]
    if missing:
        part, priority = missing[0]
        what = "ECN marks trigger no CNPs" if part == "roce_np" else "CNPs do not slow it down"
        fix = filled(ROW.fix, netdev=qos.netdev, part=part, priority=priority)
        return warned(setting.subject, f"{part} is off for priority {priority} on {qos.netdev}: {what}", *seen, fix=fix)
    on = set(qos.notify) & set(qos.react)
    which = "all priorities" if len(on) == PRIORITIES else f"priority {listed(tuple(sorted(on)))}"
    return passed(setting.subject, f"{qos.netdev} has congestion control on {which}", *seen)


CHECK = Check(ROW, look)
