"""Enhanced connection establishment (ECE) disabled."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_IB_ECE_ENABLE"

ROW = CheckRow(
    id="BW176",
    name="nccl-ib-ece",
    layer=Layer.NCCL,
    title=f"{VARIABLE} in the environment",
    right="not set, or 1, which is the default",
    why="With ECE the two NICs of a connection negotiate congestion control and adaptive routing. 0 is a workaround for RoCE NIC "
    "firmware that negotiates badly and loses most of the bandwidth. With newer firmware it only disables these features.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=READS,
    sources=("NCCL user guide, NCCL_IB_ECE_ENABLE", "NVIDIA/nccl issue 1403"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if parse_int(setting.value):
        return passed("", f"{setting.text} is the default", setting.evidence())
    return warned("", f"{setting.text} is a workaround: measure whether it is still needed", setting.evidence("not set"), fix=setting.unset)


CHECK = Check(ROW, look)
