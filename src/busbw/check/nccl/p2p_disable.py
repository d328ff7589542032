"""Direct transfers between the GPUs of a host disabled."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.gdr_level import WORDS
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

VARIABLE, LEVEL = "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"

ROW = CheckRow(
    id="BW177",
    name="nccl-p2p-disable",
    layer=Layer.NCCL,
    title=f"{VARIABLE} and {LEVEL}",
    right="not set",
    why="Without peer-to-peer transfers data goes through host memory instead of NVLink or PCIe. Disabling them helps to find a fault, "
    "such as PCIe ACS that breaks peer-to-peer, but costs most of the bandwidth inside a host.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "NVML"),
    sources=("NCCL user guide, NCCL_P2P_DISABLE and NCCL_P2P_LEVEL",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Both variables."""
    yield from each(machine, (VARIABLE, LEVEL), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    gpus = machine.host.gpus
    links = [Evidence("NVML", f"{gpus[0].nvlink} NVLinks at each GPU")] if gpus and gpus[0].nvlink else []
    if setting.name == LEVEL:
        if not setting.value.isdigit() and setting.value not in WORDS:
            message = f"{setting.text} is not an NCCL path type, and has no effect"
            return warned("", message, setting.evidence(", ".join(WORDS)), fix=setting.unset)
        if setting.value not in ("LOC", "0"):
            return passed("", f"{setting.text} sets the distance up to which GPUs access each other", setting.evidence())
    elif parse_int(setting.value) == 0:
        return passed("", f"{setting.text} is the default", setting.evidence())
    return warned(
        "", f"{setting.text}: GPUs of a host exchange data through its memory", setting.evidence("not set"), *links, fix=setting.unset
    )


CHECK = Check(ROW, look)
