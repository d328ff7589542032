"""The synchronization of the clock."""

import json
from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.os_queries import clock

ROW = CheckRow(
    id="BW121",
    name="kernel-time-sync",
    layer=Layer.KERNEL,
    title="clock synchronization",
    right="a time service keeps the clock synchronized",
    why="Logs and traces of several hosts are ordered by their clocks, which should agree to within a millisecond.",
    fix="drain the host, as the clock may jump; systemctl enable --now chronyd || systemctl enable --now systemd-timesyncd",
    stays="survives a reboot",
    reads=("adjtimex(2)",),
    sources=("adjtimex(2): STA_UNSYNC",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The state of the kernel's clock."""
    reading = machine.call("clock", clock)
    if reading.text is None:
        yield unread("", reading, "the state of the clock")
        return
    state = json.loads(reading.text)
    yield judged(
        right=state["synchronized"],
        subject="",
        good=f"the clock is synchronized, with an estimated error of {state['error_us']} us",
        bad="no time service synchronizes the clock",
        evidence=(Evidence("adjtimex(2)", "synchronized" if state["synchronized"] else "STA_UNSYNC", "synchronized"),),
        fix=f"on the host of the container: {ROW.fix}" if machine.container else ROW.fix,
    )


CHECK = Check(ROW, look)
