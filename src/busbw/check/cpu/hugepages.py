"""Huge pages for Amazon's EFA."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, skipped, unread
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.pci import AMAZON, read_devices
from busbw.host.settings import named_counts

PATH = "/proc/meminfo"
PAGES = 5120  # of 2 MiB: 10 GiB

ROW = CheckRow(
    id="BW152",
    name="mem-hugepages",
    layer=Layer.CPU,
    title="huge pages on hosts with EFA",
    right="some are reserved and free",
    why="libfabric's EFA provider allocates its buffers from huge pages. EFA can register a limited number of pages, so larger pages "
    "cover more memory.",
    fix="sysctl -w vm.nr_hugepages={pages}",
    stays="lost at the next reboot; write it to a file in /etc/sysctl.d",
    reads=(PATH, "/sys/bus/pci/devices/*/vendor"),
    sources=(
        "libfabric issue 9739",
        "Linux, Documentation/admin-guide/mm/hugetlbpage.rst",
    ),
)


def look(machine: Machine) -> Iterator[Found]:
    """The reserved pages, if an RDMA device is Amazon's."""
    devices = read_devices(machine)
    if not any(port.bdf in devices and devices[port.bdf].vendor == AMAZON for port in machine.ports):
        yield skipped("no EFA device")
        return
    reading = machine.read(PATH)
    counts = named_counts((reading.text or "").replace(":", ""))
    total, free = counts.get("HugePages_Total"), counts.get("HugePages_Free")
    if total is None or free is None:
        yield unread("", reading, "the number of huge pages")
        return
    text = f"{free} of {total} huge pages are free"
    yield judged(
        right=free > 0,
        subject="",
        good=text,
        bad=text,
        evidence=(Evidence(PATH, f"HugePages_Free {free}, HugePages_Total {total}", "more than 0"),),
        fix=filled(ROW.fix, pages=total + PAGES),
    )


CHECK = Check(ROW, look)
