"""Whether the traffic class of RDMA packets has flow control."""

from collections.abc import Iterator

from busbw.check.base import Check, broken, not_offered, passed, skipped, unread, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS
from busbw.check.roce.settings import STAYS, Setting, absent, listed, sent_class, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.roce_qos import decoded, traffic_class_path

ROW = CheckRow(
    id="BW095",
    name="roce-traffic-class",
    layer=Layer.ROCE,
    title="traffic class of NCCL's packets",
    right="its DSCP maps to a priority with flow control",
    why="NCCL uses traffic class 0 unless NCCL_IB_TC or the driver sets another. Packets outside the lossless class are dropped when "
    "buffers are full.",
    fix="echo {value} > /sys/class/infiniband/{device}/tc/{port}/traffic_class; or in the job script: export NCCL_IB_TC={value}",
    stays=STAYS,
    reads=("/sys/class/infiniband/*/tc/*/traffic_class", *READS, "dcb", "/sys/class/net/*/qos/trust"),
    sources=("NCCL user guide, NCCL_IB_TC", "NVIDIA DOCA-OFED, quality of service"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each hardware interface of a RoCE port. The right class depends on the fabric, but it must be lossless."""
    found = settings(machine)
    if not found:
        yield skipped(absent(machine))
    for setting in found:
        yield _judge(machine, setting)


def _judge(machine: Machine, setting: Setting) -> Found:
    qos, port = setting.qos, setting.port
    own = machine.read(traffic_class_path(port.device, port.number))
    if broken(own):
        return unread(setting.subject, own, "the traffic class")
    value, where = sent_class(machine, port)
    if value is None:
        return not_offered(setting.subject, "the traffic class is unknown: neither the driver nor the snapshot's environment has it")
    priority, lossless = qos.priority(value), qos.lossless
    seen = Evidence(where, decoded(value), f"one with priority {listed(lossless)}" if lossless else "")
    if lossless == ():
        return skipped(f"traffic class {decoded(value)}; no priority has flow control", setting.subject)
    if lossless is None or priority is None:
        what = "flow control" if lossless is None else f"the priority of DSCP {value >> 2}"
        return not_offered(setting.subject, f"traffic class {decoded(value)}; {what} cannot be read", seen)
    mapped = Evidence(qos.trust_where, f"{qos.trust}: priority {priority}", listed(lossless))
    if priority in lossless:
        return passed(setting.subject, f"traffic class {decoded(value)} has priority {priority}, which is lossless", seen, mapped)
    fix = filled(ROW.fix, value=_fitting(setting), device=port.device, port=port.number)
    message = f"traffic class {decoded(value)} has priority {priority}, which has no flow control"
    return warned(setting.subject, message, seen, mapped, fix=fix)


def _fitting(setting: Setting) -> str:
    """A traffic class with a lossless priority and ECN; the word CLASS if none is known."""
    dcb, lossless = setting.qos.dcb, setting.qos.lossless or ()
    known = {} if isinstance(dcb, str) else dcb.dscp
    return next((str(dscp << 2 | 2) for dscp, priority in sorted(known.items()) if priority in lossless), "CLASS")


CHECK = Check(ROW, look)
