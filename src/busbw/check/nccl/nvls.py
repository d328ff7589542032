"""NVLink SHARP switched off."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.core.checking import CheckRow, Evidence, Found, Layer
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_NVLS_ENABLE"
FIRST_SM = 90  # Hopper, whose NVSwitches reduce

ROW = CheckRow(
    id="BW179",
    name="nccl-nvls",
    layer=Layer.NCCL,
    title=f"{VARIABLE} on GPUs with NVLink SHARP",
    right="not set, or not 0",
    why="With NVLink SHARP the switches reduce, and each byte crosses a link once. On 2x8 H100 with 400 GB/s of network, all_reduce "
    "reached 465 GB/s; Ring cannot exceed 400 and Tree 422.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "NVML"),
    sources=("NCCL user guide, NCCL_NVLS_ENABLE",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and whether the GPUs have NVLink SHARP."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if parse_int(setting.value):
        return passed("", f"{setting.text} leaves NVLink SHARP on", setting.evidence())
    gpus = machine.host.gpus
    if gpus and all(gpu.sm < FIRST_SM or gpu.nvlink == 0 for gpu in gpus):
        return passed("", f"{setting.text}, and these GPUs have no NVLink SHARP", setting.evidence(), Evidence("NVML", gpus[0].name))
    return warned("", f"{setting.text} switches NVLink SHARP off", setting.evidence("not set"), fix=setting.unset)


CHECK = Check(ROW, look)
