"""Why the clocks of a GPU are reduced."""

from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, skipped, warned
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.gpu_events import CLOCK_REASONS, Severity, clock_reasons
from busbw.host.gpu_health import GpuHealth

IDLE = 0x1
HARDWARE = ("hw_thermal_slowdown", "hw_power_brake_slowdown")  # a fault of cooling or power supply, which halves the clocks

ROW = CheckRow(
    id="BW011",
    name="gpu-throttle",
    layer=Layer.GPU,
    title="reasons for reduced clocks",
    right="none due to heat, power brake or hardware; the power limit is normal under load",
    why="Heat and the power brake can halve the clocks. All ranks wait for one slow GPU, and no Xid reports it. It fails if the hardware "
    "does it for heat or the power brake.",
    fix="check the fans, air flow and power supplies of the chassis; nvidia-smi -i {gpu} -q -d PERFORMANCE,TEMPERATURE,POWER",
    stays="once the cause is gone, the driver raises the clocks itself",
    reads=("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"),
    sources=("nvml.h, nvmlClocksEventReason constants", "gpud, hw-slowdown"),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.reasons is None:
        return unreported(gpu, "reasons", "reasons for reduced clocks")
    names = clock_reasons(gpu.reasons)
    bad = [row for row in CLOCK_REASONS if row.name in names and row.severity is Severity.BAD]
    clocks = f"SM {gpu.sm_mhz}, memory {gpu.memory_mhz} MHz"
    evidence = (
        said(gpu, "CurrentClocksEventReasons", f"{gpu.reasons:#x} {', '.join(names)}".strip(), "no slowdown"),
        said(gpu, "ClockInfo", clocks, f"at most SM {gpu.sm_max_mhz}, memory {gpu.memory_max_mhz} MHz"),
    )
    if bad:
        message = f"clocks are reduced: {'; '.join(row.meaning for row in bad)}"
        report = failed if any(row.name in HARDWARE for row in bad) else warned
        return report(gpu.label, message, *evidence, fix=filled(ROW.fix, gpu=gpu.index))
    if gpu.reasons & IDLE:
        return skipped("the GPU is idle: its clocks can be judged only under load: busbw check --load 10", gpu.label)
    return passed(gpu.label, "clocks are not reduced by heat, power brake or hardware", *evidence)


CHECK = Check(ROW, look)
