"""RAM and huge pages against [memory]."""

from collections.abc import Iterator

from busbw.check.base import skipped
from busbw.check.expect import seen
from busbw.check.expect.base import Asked, Comparison, Expectation, gib
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

MEMINFO = "/proc/meminfo"

ROW = CheckRow(
    id="BW296",
    name="expect-memory",
    layer=Layer.EXPECTED,
    title="RAM and huge pages, as an expectations file has them",
    right="at least ram_bytes of [memory], less the share ram_tolerance, and at least hugepages of the default size",
    why="A memory module that failed is taken out at boot without a message. The host then has less memory and fewer memory channels.",
    fix="dmidecode -t memory and the BMC's log name the module that is missing; drain the node and replace it",
    stays="permanent: hardware; for huge pages, vm.nr_hugepages in /etc/sysctl.d",
    reads=(MEMINFO,),
    sources=("the file given with --expect",),
)


def look(asked: Asked) -> Iterator[Found]:
    """One finding for the host."""
    machine, expected = asked.machine, asked.node.memory
    ram, pages = seen.ram_bytes(machine), seen.hugepages(machine)
    fewer_pages = expected.hugepages is not None and pages is not None and pages < expected.hugepages
    enough = ram is None or expected.ram_bytes is None or ram >= expected.ram_bytes * (1 - expected.ram_tolerance)
    compared = Comparison(asked, "", f"sysctl -w vm.nr_hugepages={expected.hugepages}" if fewer_pages and enough else ROW.fix)
    compared.least(
        "RAM", ram, expected.ram_bytes, ("memory", "ram_bytes"), f"{MEMINFO}: MemTotal", unit=gib, tolerance=expected.ram_tolerance
    )
    compared.least("number of huge pages", pages, expected.hugepages, ("memory", "hugepages"), f"{MEMINFO}: HugePages_Total")
    yield from compared.found() or [skipped("the file expects nothing of the memory")]


CHECK = Expectation(ROW, look)
