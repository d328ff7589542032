"""NVLink SHARP disabled."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, STAYS, Setting, each
from busbw.check.nvlink.linked import switched
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.finding import Verdict
from busbw.core.sizes import parse_int

VARIABLE = "NCCL_NVLS_ENABLE"
FIRST_SM = 90  # Hopper, whose NVSwitches reduce

ROW = CheckRow(
    id="BW179",
    name="nccl-nvls",
    layer=Layer.NCCL,
    title=f"{VARIABLE} on GPUs with NVLink SHARP",
    right="not set, or not 0, with two or more GPUs of Hopper or later behind NVSwitch",
    why="With NVLink SHARP the switches reduce, and each byte crosses a link once. Without it the busbw of all_reduce on 8 H100 falls "
    "from 476 GB/s to 360 to 369. On 2x8 H100 with 400 GB/s of network it reached 465 GB/s; Ring cannot exceed 400 and Tree 422.",
    fix=f"unset {VARIABLE}",
    stays=STAYS,
    reads=(*READS, "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetNvLinkRemoteDeviceType"),
    sources=("NCCL user guide, NCCL_NVLS_ENABLE", "NCCL src/transport/nvls.cc"),
)


def look(machine: Machine) -> Iterator[Found]:
    """The variable, and whether the GPUs have NVLink SHARP. Only a run shows whether CUDA can use multicast."""
    yield from each(machine, (VARIABLE,), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if parse_int(setting.value):
        return passed("", f"{setting.text} leaves NVLink SHARP on", setting.evidence())
    gpus, missing = switched(machine)
    if missing and missing.verdict is Verdict.SKIP:
        return passed("", f"{setting.text}, and there is no NVLink SHARP: {missing.message}", setting.evidence())
    if len(gpus) == 1 or any((gpu.sm or FIRST_SM) < FIRST_SM for gpu in gpus):
        seen = Evidence("NVML", f"{len(gpus)} x {gpus[0].name}")
        return passed("", f"{setting.text}, and these GPUs have no NVLink SHARP", setting.evidence(), seen)
    return warned("", f"{setting.text} disables NVLink SHARP", setting.evidence("not set"), fix=setting.unset)


CHECK = Check(ROW, look)
