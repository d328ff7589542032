"""The tuner plugin that the environment names."""

from collections.abc import Iterator

from busbw.check.base import Check
from busbw.check.machine import Machine
from busbw.check.nccl import plugin
from busbw.check.nccl.settings import READS, STAYS
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "NCCL_TUNER_PLUGIN"

ROW = CheckRow(
    id="BW186",
    name="nccl-tuner-plugin",
    layer=Layer.NCCL,
    title=f"library of {VARIABLE}",
    right="not set, none, or a library that exists",
    why="If it is missing, its algorithm choices are not used, without an error.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "LD_LIBRARY_PATH", "library folders of the system"),
    sources=(f"NCCL user guide, {VARIABLE}",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The library."""
    yield from plugin.found(machine, VARIABLE, "tuner", "NCCL chooses algorithms itself")


CHECK = Check(ROW, look)
