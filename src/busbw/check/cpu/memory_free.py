"""Memory that is available."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.cpu import meminfo

PATH = "/proc/meminfo"
SHARE = 0.1

ROW = CheckRow(
    id="BW153",
    name="mem-free",
    layer=Layer.CPU,
    title="available memory",
    right=f"{SHARE:.0%} of the memory or more",
    why="When memory is low the kernel frees pages before each allocation, which delays ranks. In the end it kills a process.",
    fix="ps -eo rss,pid,user,comm --sort=-rss | head, and kill what an earlier job left behind",
    stays="until the next job leaves processes behind",
    reads=(PATH,),
    sources=("proc(5): /proc/meminfo",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Available against total."""
    total, available = (meminfo(machine, field) for field in ("MemTotal", "MemAvailable"))
    if not total or not available:
        yield unread("", machine.read(PATH), "the available memory")
        return
    text = f"{available >> 30} of {total >> 30} GiB are available"
    evidence = Evidence(PATH, f"MemAvailable {available >> 20} MiB", f"{int(SHARE * total) >> 20} MiB or more")
    yield judged(right=available >= SHARE * total, subject="", good=text, bad=f"only {text}", evidence=(evidence,), fix=ROW.fix)


CHECK = Check(ROW, look)
