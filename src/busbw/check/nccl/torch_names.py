"""Deprecated names of PyTorch variables, and one that blocks."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.machine import Machine
from busbw.check.nccl.settings import READS, Setting, each
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.sizes import parse_int

# PyTorch reads them with the prefix TORCH_. Depending on the version it also reads these names.
RENAMED = (
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
)
BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"

ROW = CheckRow(
    id="BW191",
    name="torch-nccl-names",
    layer=Layer.NCCL,
    title="PyTorch's variables for NCCL",
    right=f"names that begin with TORCH_; {BLOCKING} not set",
    why="NCCL_ASYNC_ERROR_HANDLING and others are read by PyTorch, not NCCL. They now begin with TORCH_, and the old names are "
    "deprecated. With blocking wait each wait() holds the CPU thread until the GPU is done, so computation and communication overlap "
    "less.",
    fix="export TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
    stays="set it in the job script",
    reads=READS,
    sources=("PyTorch documentation, ProcessGroupNCCL environment variables",),
)


def look(machine: Machine) -> Iterator[Found]:
    """The old names, and blocking wait."""
    yield from each(machine, (*RENAMED, BLOCKING), _judge)


def _judge(machine: Machine, setting: Setting) -> Found:
    if setting.name == BLOCKING:
        if parse_int(setting.value) == 0:
            return passed(BLOCKING, f"{setting.text} is the default", setting.evidence())
        return warned(BLOCKING, f"{setting.text}: each wait() blocks the CPU thread", setting.evidence("not set"), fix=setting.unset)
    new = f"TORCH_{setting.name}"
    message = f"{setting.name} is PyTorch's deprecated name for {new}"
    return warned(setting.name, message, setting.evidence(new), fix=Setting(new, setting.value, setting.file).to(setting.value))


CHECK = Check(ROW, look)
