"""Global pause together with priority flow control."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, not_offered, skipped, unanswered
from busbw.check.machine import Machine
from busbw.check.roce.settings import STAYS, absent, hidden, listed, settings
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pause_frames import read_pause

ROW = CheckRow(
    id="BW098",
    name="roce-pause-global",
    layer=Layer.ROCE,
    title="global pause of RoCE ports",
    right="off if priority flow control is on",
    why="A global pause stops all priorities of the port, including those that should keep sending. Use one of the two, not both.",
    fix="drain the host; if the switch port has flow control on the same priorities: ethtool -A {netdev} rx off tx off",
    stays=STAYS,
    reads=("ethtool -a", "dcb"),
    sources=("IEEE 802.3 annex 31B and IEEE 802.1Qbb", "Linux include/uapi/linux/ethtool.h, ETHTOOL_GPAUSEPARAM"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each hardware interface of a RoCE port."""
    found = settings(machine)
    if not found:
        yield skipped(absent(machine))
    for setting in found:
        qos = setting.qos
        pause = read_pause(machine, qos.netdev)
        if isinstance(pause, str):
            yield unanswered(setting.subject, hidden(machine, f"global pause cannot be read: {pause}"), pause)
            continue
        on = [name for name, value in (("rx", pause.rx), ("tx", pause.tx)) if value]
        if on and qos.lossless is None:
            yield not_offered(setting.subject, hidden(machine, "global pause is on; priority flow control cannot be read"))
            continue
        yield judged(
            right=not (on and qos.lossless),
            subject=setting.subject,
            good=f"{qos.netdev} has global pause {'on, and no priority flow control' if on else 'off'}",
            bad=f"{qos.netdev} has global pause on ({', '.join(on)}) together with flow control on priority {listed(qos.lossless)}",
            evidence=(Evidence(f"ethtool -a {qos.netdev}", f"on: {', '.join(on) or 'none'}", "none" if qos.lossless else ""),),
            fix=filled(ROW.fix, netdev=qos.netdev),
        )


CHECK = Check(ROW, look)
