"""Transparent huge pages."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, unread
from busbw.check.machine import Machine
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.settings import bracketed

PATH = "/sys/kernel/mm/transparent_hugepage/enabled"

ROW = CheckRow(
    id="BW117",
    name="kernel-thp",
    layer=Layer.KERNEL,
    title="transparent huge pages",
    right="madvise or always",
    why="With never, host buffers use 4 KiB pages: more TLB misses, and more pages to pin when memory is registered.",
    fix=f"echo madvise > {PATH}",
    stays="lost at the next reboot; add transparent_hugepage=madvise to the kernel command line",
    reads=(PATH,),
    sources=("Linux, Documentation/admin-guide/mm/transhuge.rst",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The choice in brackets."""
    reading = machine.read(PATH)
    chosen = bracketed(reading.text or "")
    if chosen is None:
        yield unread("", reading, "the setting of transparent huge pages")
        return
    text = f"transparent huge pages are set to {chosen}"
    evidence = Evidence(PATH, chosen, "madvise or always")
    yield judged(right=chosen != "never", subject="", good=text, bad=text, evidence=(evidence,), fix=ROW.fix)


CHECK = Check(ROW, look)
