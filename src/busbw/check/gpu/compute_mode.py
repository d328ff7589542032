"""Who may use a GPU."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, warned
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

PROHIBITED = 2
MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}  # nvml.h, nvmlComputeMode_t

ROW = CheckRow(
    id="BW016",
    name="gpu-compute-mode",
    layer=Layer.GPU,
    title="compute mode",
    right="Default",
    why="In Prohibited mode no CUDA program can use the GPU. In Exclusive_Process mode only one can: a process left by the last job "
    "makes the next one fail.",
    fix="nvidia-smi -i {gpu} -c DEFAULT",
    stays="a reboot clears the mode too; remove it from the script or service that sets it",
    reads=("nvmlDeviceGetComputeMode",),
    sources=("nvidia-smi manual, compute mode",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.compute_mode is None:
        return unreported(gpu, "compute_mode", "compute mode")
    mode = MODES.get(gpu.compute_mode, str(gpu.compute_mode))
    evidence, fix = said(gpu, "ComputeMode", mode, MODES[0]), filled(ROW.fix, gpu=gpu.index)
    if gpu.compute_mode == PROHIBITED:
        return failed(gpu.label, f"compute mode {mode}: no CUDA program can use it", evidence, fix=fix)
    if gpu.compute_mode:
        return warned(gpu.label, f"compute mode {mode}: only one process can use it", evidence, fix=fix)
    return passed(gpu.label, f"compute mode {mode}", evidence)


CHECK = Check(ROW, look)
