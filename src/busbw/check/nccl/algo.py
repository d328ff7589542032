"""A forced algorithm."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "NCCL_ALGO"
ALGORITHMS = {"RING", "TREE", "COLLNET", "COLLNETCHAIN", "COLLNETDIRECT", "NVLS", "NVLSTREE", "PAT"}

ROW = CheckRow(
    id="BW171",
    name="nccl-algo",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set: NCCL chooses by size and number of ranks",
    why="A value left over from a test applies to all sizes, and excludes NVLink SHARP unless it names NVLS. NCCL 2.24 and newer fail if "
    "the named algorithm does not support a collective, because they no longer fall back to Ring. They also fail on an unknown word.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_ALGO",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    lists = [part.rpartition(":")[2].removeprefix("^") for part in setting.value.upper().split(";")]
    strange = sorted({word for one in lists for word in one.split(",") if word and word not in ALGORITHMS})
    if strange:
        message = f"{setting.text}: NCCL has no algorithm {', '.join(strange)}"
        return failed("", message, setting.evidence("not set"), fix=setting.unset)
    return warned("", f"{setting.text} overrides NCCL's choice of algorithm", setting.evidence("not set"), fix=setting.unset)


CHECK = Check(ROW, look)
