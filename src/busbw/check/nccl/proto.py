"""A forced protocol."""

from collections.abc import Iterator

from busbw.check.base import Check, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

VARIABLE = "NCCL_PROTO"

ROW = CheckRow(
    id="BW170",
    name="nccl-proto",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set: NCCL chooses LL, LL128 or Simple by size, and knows where LL128 is safe",
    why="LL128 corrupts data on platforms where NCCL does not enable it. LL reaches at most half of the bandwidth. Simple adds latency "
    "to small messages.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_PROTO",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    lists = [part.rpartition(":")[2] for part in setting.value.upper().split(";")]
    forced = any("LL128" in one.split(",") for one in lists)  # a list that excludes begins with ^
    what = "forces LL128, which can corrupt data where NCCL would not use it" if forced else "overrides NCCL's choice of protocol"
    return warned("", f"{setting.text} {what}", setting.evidence("not set"), fix=setting.unset)


CHECK = Check(ROW, look)
