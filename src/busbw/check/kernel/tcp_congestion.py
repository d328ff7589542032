"""TCP congestion control."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer

PATH = "/proc/sys/net/ipv4/tcp_congestion_control"
PACED = "bbr"  # prefix of all its versions

ROW = CheckRow(
    id="BW119",
    name="kernel-tcp-congestion",
    layer=Layer.KERNEL,
    title="TCP congestion control",
    right="any except BBR, such as cubic",
    why="BBR slows down streams that pause, as in collectives. An all_reduce of 16 MiB took 1.4 to 1.8 times as long as with reno.",
    fix="sysctl -w net.ipv4.tcp_congestion_control=cubic",
    stays="lost at the next reboot; write it to a file in /etc/sysctl.d",
    reads=(PATH,),
    sources=("busbw, benchmarks/net_loss_2cpu_202611",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The default of new connections."""
    reading = machine.read(PATH)
    if not reading.text:
        yield unread("", reading, "the TCP congestion control")
        return
    text = f"TCP congestion control is {reading.text}"
    yield judged(
        right=not reading.text.startswith(PACED),
        subject="",
        good=text,
        bad=f"{text}, which slows down streams that pause",
        evidence=(Evidence(PATH, reading.text, "not BBR"),),
        fix=ROW.fix,
    )


CHECK = Check(ROW, look)
