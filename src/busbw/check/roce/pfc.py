"""Priority flow control of RoCE ports."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, skipped, unanswered, warned
from busbw.check.machine import Machine
from busbw.check.roce.settings import STAYS, Setting, absent, hidden, listed, mask, nvidia, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.dcb import PRIORITIES
from busbw.host.pause_frames import Pause, read_pause

COMMON = (3,)

ROW = CheckRow(
    id="BW091",
    name="roce-pfc",
    layer=Layer.ROCE,
    title="priority flow control (PFC) of RoCE ports",
    right="on for the lossless priorities of the fabric (commonly 3), the same at both ends of the cable, and off for all others",
    why="Without PFC a full buffer drops RDMA packets. With PFC on all priorities one slow receiver stops all traffic on the path, and "
    "pauses spread.",
    fix="mlnx_qos -i {netdev} --pfc 0,0,0,1,0,0,0,0; for NICs of other vendors: dcb pfc set dev {netdev} prio-pfc all:off 3:on",
    stays=STAYS,
    reads=("dcb", "ethtool -a"),
    sources=("IEEE 802.1Qbb", "NVIDIA Network Operator, NIC configuration"),
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
    if qos.lossless is None:
        reason = qos.dcb if isinstance(qos.dcb, str) else f"{qos.netdev}: its driver has no such value"
        return unanswered(setting.subject, hidden(machine, f"flow control cannot be read: {reason}"), reason)
    evidence = Evidence(f"dcb {qos.netdev}", f"PFC on for {listed(qos.lossless)}", "the lossless priorities of the switch")
    own = filled("mlnx_qos -i {netdev} --pfc {mask}", netdev=qos.netdev, mask=mask(COMMON))
    command = (
        own if nvidia(machine, setting.port) else filled(f"dcb pfc set dev {{netdev}} prio-pfc all:off {COMMON[0]}:on", netdev=qos.netdev)
    )
    fix = f"{command}; or the lossless priorities of the switch instead"
    if not qos.lossless:
        pause = read_pause(machine, qos.netdev)
        rest = "RoCE is lossy, which is right only on a lossy fabric"
        if isinstance(pause, Pause) and pause.rx and pause.tx:
            rest = "global pause is on instead, and stops all traffic of the port"
        return warned(setting.subject, f"{qos.netdev} has no priority with flow control: {rest}", evidence, fix=fix)
    if len(qos.lossless) == PRIORITIES:
        message = f"{qos.netdev} has flow control on all priorities: one slow receiver stops all traffic"
        return warned(setting.subject, message, evidence, fix=fix)
    return passed(setting.subject, f"{qos.netdev} has flow control on {listed(qos.lossless)}", evidence)


CHECK = Check(ROW, look)
