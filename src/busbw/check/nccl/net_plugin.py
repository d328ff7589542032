"""The network plugin that the environment names."""

from collections.abc import Iterator

from busbw.check.base import Check
from busbw.check.machine import Machine
from busbw.check.nccl import plugin
from busbw.check.nccl.settings import READS, STAYS
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "NCCL_NET_PLUGIN"

ROW = CheckRow(
    id="BW185",
    name="nccl-net-plugin",
    layer=Layer.NCCL,
    title=f"library of {VARIABLE}",
    right="not set, none, or a library that exists",
    why="An image built for another fabric names a plugin that the host lacks, or the reverse. NCCL then uses its own InfiniBand or "
    "socket transport, which on some fabrics is many times slower.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "LD_LIBRARY_PATH", "library folders of the system"),
    sources=(f"NCCL user guide, {VARIABLE}",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The library."""
    yield from plugin.found(machine, VARIABLE, "net", "NCCL uses its own network")


CHECK = Check(ROW, look)
