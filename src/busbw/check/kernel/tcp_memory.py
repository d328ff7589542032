"""The maximum TCP buffer sizes."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import numbers

IPV4 = "/proc/sys/net/ipv4"
LEAST = {"tcp_rmem": 6 << 20, "tcp_wmem": 4 << 20}  # the kernel's defaults on machines with enough memory

ROW = CheckRow(
    id="BW118",
    name="kernel-tcp-memory",
    layer=Layer.KERNEL,
    title="maximum TCP buffer sizes",
    right="at least the kernel's defaults: 6 MiB to receive, 4 MiB to send",
    why="A stream sends at most one buffer per round trip: 4 MiB at 1 ms are 34 Gbit/s. Smaller buffers slow down NCCL over TCP.",
    fix="sysctl -w net.ipv4.{name}='{least} {default} {most}'",
    stays="lost at the next reboot; write it to a file in /etc/sysctl.d",
    reads=tuple(f"{IPV4}/{name}" for name in LEAST),
    sources=("Linux, Documentation/networking/ip-sysctl.rst: tcp_rmem, tcp_wmem",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The third number of each."""
    for name, least in LEAST.items():
        path = f"{IPV4}/{name}"
        reading = machine.read(path)
        values = numbers(reading.text or "")
        if len(values) != 3:
            yield unread(name, reading, "the buffer sizes")
            continue
        text = f"a TCP stream may {'receive' if name == 'tcp_rmem' else 'send'} with a buffer of {values[2]} bytes"
        yield judged(
            right=values[2] >= least,
            subject=name,
            good=text,
            bad=f"{text}, less than the kernel's default of {least}",
            evidence=(Evidence(path, str(values[2]), f"{least} or more"),),
            fix=filled(ROW.fix, name=name, least=values[0], default=values[1], most=least),
        )


CHECK = Check(ROW, look)
