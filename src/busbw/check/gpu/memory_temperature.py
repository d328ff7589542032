"""The temperature of a GPU's memory (HBM)."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, not_offered
from busbw.check.gpu.each import each, said
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW262",
    name="gpu-memory-temperature",
    layer=Layer.GPU,
    title="temperature of GPU memory (HBM)",
    right="below the maximum operating temperature of the memory",
    why="Memory that is too hot is refreshed more often and has more errors. The driver then reduces the clocks, though the GPU itself "
    "is cool.",
    fix="check fans, air flow and inlet temperature of the chassis; nvidia-smi -i {gpu} -q -d TEMPERATURE; if only this GPU is hot, "
    "drain the host and check its heat sink",
    stays="yes, once the cooling is repaired",
    reads=("NVML_FI_DEV_MEMORY_TEMP", "nvmlDeviceGetTemperatureThreshold (MEM_MAX)", "NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT"),
    sources=("nvml.h, nvmlTemperatureThresholds_t and field identifiers",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.memory_c is None:
        return not_offered(gpu.label, "its driver does not report the temperature of the memory")
    if gpu.memory_max_c:
        right, seen, expected = gpu.memory_c < gpu.memory_max_c, f"{gpu.memory_c} C", f"below {gpu.memory_max_c} C"
    elif gpu.margin_c is not None and gpu.memory_margin_c is not None:
        # Hopper and later have no limit in degrees: the margin of the GPU includes its memory.
        right, expected = gpu.margin_c > gpu.memory_margin_c, f"a margin above {gpu.memory_margin_c} C"
        seen = f"{gpu.memory_c} C, with a margin of {gpu.margin_c} C"
    else:
        return not_offered(gpu.label, f"memory at {gpu.memory_c} C, but NVML reports no limit")
    return judged(
        right=right,
        subject=gpu.label,
        good=f"memory at {gpu.memory_c} C",
        bad=f"memory at {gpu.memory_c} C: at or above its limit",
        evidence=(said(gpu, "FieldValues, NVML_FI_DEV_MEMORY_TEMP", seen, expected),),
        fix=filled(ROW.fix, gpu=gpu.index),
        weight=gpu.memory_c,
    )


CHECK = Check(ROW, look)
