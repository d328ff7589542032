"""The ports of outgoing connections."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import numbers

PATH = "/proc/sys/net/ipv4/ip_local_port_range"
DEFAULT = (32768, 60999)

ROW = CheckRow(
    id="BW120",
    name="kernel-port-range",
    layer=Layer.KERNEL,
    title="range of ports that the kernel assigns",
    right=f"as wide as the kernel's default, {DEFAULT[0]} to {DEFAULT[1]}, or wider",
    why="NCCL, MPI and PyTorch listen on ports in this range. Large jobs can exhaust a narrow one. A firewall must allow all of it.",
    fix=f"sysctl -w net.ipv4.ip_local_port_range='{DEFAULT[0]} {DEFAULT[1]}'",
    stays="lost at the next reboot; write it to a file in /etc/sysctl.d",
    reads=(PATH,),
    sources=("Linux, Documentation/networking/ip-sysctl.rst: ip_local_port_range",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The number of ports."""
    reading = machine.read(PATH)
    values = numbers(reading.text or "")
    if len(values) != 2:
        yield unread("", reading, "the range of ports")
        return
    count, usual = values[1] - values[0] + 1, DEFAULT[1] - DEFAULT[0] + 1
    text = f"the kernel assigns {count} ports, {values[0]} to {values[1]}"
    evidence = Evidence(PATH, f"{values[0]} {values[1]}", f"{usual} ports or more")
    yield judged(right=count >= usual, subject="", good=text, bad=f"{text}; the default is {usual}", evidence=(evidence,), fix=ROW.fix)


CHECK = Check(ROW, look)
