"""The temperature of a GPU against its own limits."""

from collections.abc import Iterator

from busbw.check.base import Check, judged, not_offered
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW013",
    name="gpu-temperature",
    layer=Layer.GPU,
    title="temperature",
    right="below the GPU's maximum operating temperature, with more than 0 degrees left before it slows down",
    why="Above it the driver reduces the clocks, first slightly, then by half. A GPU near the limit when idle has no headroom under load.",
    fix="check fans, air flow and inlet temperature of the chassis; nvidia-smi -i {gpu} -q -d TEMPERATURE",
    stays="yes, once the cooling is repaired",
    reads=("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetMarginTemperature"),
    sources=("nvml.h, nvmlTemperatureThresholds_t",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.temperature_c is None:
        return unreported(gpu, "temperature_c", "temperature")
    limit = gpu.gpu_max_c or gpu.slowdown_c
    if gpu.margin_c is not None:
        right, expected = gpu.margin_c > 0, "a margin above 0 C"
        seen = f"{gpu.temperature_c} C, {gpu.margin_c} C below the slowdown"
    elif limit:
        right, expected, seen = gpu.temperature_c < limit, f"below {limit} C", f"{gpu.temperature_c} C"
    else:
        return not_offered(gpu.label, f"{gpu.temperature_c} C, but NVML reports no limit")
    return judged(
        right=right,
        subject=gpu.label,
        good=f"{gpu.temperature_c} C",
        bad=f"{gpu.temperature_c} C: at or above its limit",
        evidence=(said(gpu, "Temperature", seen, expected),),
        fix=filled(ROW.fix, gpu=gpu.index),
        weight=gpu.temperature_c,
    )


CHECK = Check(ROW, look)
