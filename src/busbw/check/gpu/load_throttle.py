"""Reduced clocks under load."""

from collections import Counter
from collections.abc import Iterator

from busbw.check.base import Check, failed, passed, unknown, warned
from busbw.check.gpu.throttle import HARDWARE
from busbw.check.load import GpuLoad, loaded
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Found
from busbw.core.check_row import CheckRow, Layer
from busbw.core.gpu_events import CLOCK_REASONS, Severity, clock_reasons

BAD = {row.name: row.meaning for row in CLOCK_REASONS if row.severity is Severity.BAD}

ROW = CheckRow(
    id="BW022",
    name="gpu-load-throttle",
    layer=Layer.GPU,
    title="reasons for reduced clocks, under load",
    right="none due to heat, power brake or hardware in any sample",
    why="A GPU that is throttled part of the time looks healthy in most single readings, and all ranks wait for it. Copies barely heat a "
    "GPU: throttling by heat or power brake during copies is a chassis fault.",
    fix="check the fans, air flow and power supplies of the chassis; nvidia-smi -i {gpu} -q -d PERFORMANCE,TEMPERATURE,POWER",
    stays="once the cause is gone, the driver raises the clocks itself",
    reads=("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage"),
    sources=("nvml.h, nvmlClocksEventReason constants",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU, all its samples."""
    return loaded(machine, _judge, over_pcie=False)


def _judge(gpu: GpuLoad) -> Iterator[Found]:
    known = [sample for sample in gpu.samples if sample.reasons is not None]
    if not known:
        yield unknown(gpu.label, "NVML does not report the reasons for reduced clocks")
        return
    held = Counter(name for sample in known for name in clock_reasons(sample.reasons or 0))
    bad = {name: count for name, count in held.items() if name in BAD}
    clocks = [sample.sm_mhz for sample in known if sample.sm_mhz is not None]
    hot, drawn = (max((value for value in values if value is not None), default=None) for values in (
        [sample.temperature_c for sample in known], [sample.power_w for sample in known]
    ))  # fmt: skip
    seen = f"SM {min(clocks, default='?')} to {max(clocks, default='?')} of {gpu.sm_max_mhz or '?'} MHz, {hot} C, {drawn} W"
    shares = ", ".join(f"{name} {count / len(known):.0%}" for name, count in held.most_common()) or "none"
    evidence = Evidence(f"NVML, {gpu.label}, {len(known)} samples", f"{shares}; {seen}", "no slowdown")
    if bad:
        text = "; ".join(f"{BAD[name]} for {count / len(known):.0%} of the time" for name, count in bad.items())
        report = failed if set(bad) & set(HARDWARE) else warned
        yield report(gpu.label, f"clocks are reduced under load: {text}", evidence, fix=filled(ROW.fix, gpu=gpu.index))
    else:
        yield passed(gpu.label, f"no throttling by heat, power brake or hardware under load: {seen}", evidence)


CHECK = Check(ROW, look)
