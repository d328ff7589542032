"""Clocks of GPUs: why they are reduced, idle or under load, and limits that were set."""

from collections import Counter
from collections.abc import Iterator

from busbw.check.base import failed, passed, skipped, unknown, warned
from busbw.check.gpu.per_gpu import nvml_evidence, per_gpu, unreported
from busbw.check.load.gpu_copies import GpuLoad
from busbw.check.load.judge import under_load
from busbw.check.shell_words import filled
from busbw.check.types import Evidence, Finding
from busbw.core.finding import CheckRow, Layer
from busbw.core.telemetry import Severity, all_clock_reasons, clock_reasons
from busbw.host.gpu_health import GpuHealth

IDLE_REASON = 0x1
# Reasons that show a fault of cooling or power supply, which halves the clocks.
HARDWARE_REASONS = ("hw_thermal_slowdown", "hw_power_brake_slowdown")

THROTTLE = CheckRow(
    id="BW011",
    name="gpu-throttle",
    layer=Layer.GPU,
    title="reasons for reduced clocks",
    right="none due to heat, power brake or hardware; the power limit is normal under load",
    why=(
        "Heat and the power brake can halve the clocks. All ranks wait for one slow GPU, and no "
        "Xid reports it. It fails if the hardware does it for heat or the power brake."
    ),
    fix=(
        "check the fans, air flow and power supplies of the chassis; nvidia-smi -i {gpu} -q -d"
        " PERFORMANCE,TEMPERATURE,POWER"
    ),
    stays="once the cause is gone, the driver raises the clocks itself",
    reads=(
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxClockInfo",
    ),
    sources=("nvml.h, nvmlClocksEventReason constants", "gpud, hw-slowdown"),
)


@per_gpu(THROTTLE)
def check_throttle(gpu: GpuHealth) -> Finding:
    if gpu.reasons is None:
        return unreported(gpu, "reasons", "reasons for reduced clocks")
    names = clock_reasons(gpu.reasons)
    bad = [row for row in all_clock_reasons() if row.name in names and row.severity is Severity.BAD]
    reasons = f"{gpu.reasons:#x} {', '.join(names)}".strip()
    clocks = f"SM {gpu.sm_mhz}, memory {gpu.memory_mhz} MHz"
    limits = f"at most SM {gpu.sm_max_mhz}, memory {gpu.memory_max_mhz} MHz"
    evidence = (
        nvml_evidence(gpu, "CurrentClocksEventReasons", reasons, "no slowdown"),
        nvml_evidence(gpu, "ClockInfo", clocks, limits),
    )
    if bad:
        message = f"clocks are reduced: {'; '.join(row.meaning for row in bad)}"
        report = failed if any(row.name in HARDWARE_REASONS for row in bad) else warned
        return report(gpu.label, message, *evidence, fix=filled(THROTTLE.fix, gpu=gpu.index))
    if gpu.reasons & IDLE_REASON:
        return skipped(
            "the GPU is idle: its clocks can be judged only under load: busbw check --load 10",
            gpu.label,
        )
    return passed(gpu.label, "clocks are not reduced by heat, power brake or hardware", *evidence)


CLOCKS_LOCKED = CheckRow(
    id="BW012",
    name="gpu-clocks-locked",
    layer=Layer.GPU,
    title="clocks set below the default",
    right=(
        "the application clock is at its default or above, and the boost clock may reach the"
        " maximum"
    ),
    why=(
        "Clocks that were set for a test or to save power stay until they are reset. The GPU is"
        " then slower than others of its model."
    ),
    fix="nvidia-smi -i {gpu} -rac; nvidia-smi -i {gpu} -rgc",
    stays="a reboot clears the setting too; remove it from the script or service that sets it",
    reads=(
        "nvmlDeviceGetApplicationsClock",
        "nvmlDeviceGetDefaultApplicationsClock",
        "nvmlDeviceGetMaxCustomerBoostClock",
    ),
    sources=("nvidia-smi manual, clocks",),
)


@per_gpu(CLOCKS_LOCKED)
def check_clocks_locked(gpu: GpuHealth) -> Finding:
    fix = filled(CLOCKS_LOCKED.fix, gpu=gpu.index)
    app, default, boost, largest = gpu.app_mhz, gpu.app_default_mhz, gpu.boost_mhz, gpu.sm_max_mhz
    evidence = []
    if app is not None and default is not None:
        evidence.append(nvml_evidence(gpu, "ApplicationsClock", f"{app} MHz", f"{default} MHz"))
        if app < default:
            return warned(
                gpu.label,
                f"application clock set to {app} MHz, below the default of {default}",
                *evidence,
                fix=fix,
            )
    if boost is not None and largest is not None:
        evidence.append(
            nvml_evidence(gpu, "MaxCustomerBoostClock", f"{boost} MHz", f"{largest} MHz")
        )
        if boost < largest:
            return warned(
                gpu.label, f"boost clock limited to {boost} of {largest} MHz", *evidence, fix=fix
            )
    if not evidence:
        return unreported(gpu, "boost_mhz", "application and boost clocks")
    return passed(gpu.label, "neither application nor boost clock is limited", *evidence)


LOAD_THROTTLE = CheckRow(
    id="BW022",
    name="gpu-load-throttle",
    layer=Layer.GPU,
    title="reasons for reduced clocks, under load",
    right="none due to heat, power brake or hardware in any sample",
    why=(
        "A GPU that is throttled part of the time looks healthy in most single readings, and all "
        "ranks wait for it. Copies barely heat a GPU: throttling by heat or power brake during "
        "copies is a chassis fault."
    ),
    fix=(
        "check the fans, air flow and power supplies of the chassis; nvidia-smi -i {gpu} -q -d"
        " PERFORMANCE,TEMPERATURE,POWER"
    ),
    stays="once the cause is gone, the driver raises the clocks itself",
    reads=(
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
    ),
    sources=("nvml.h, nvmlClocksEventReason constants",),
)


@under_load(LOAD_THROTTLE, over_pcie=False)
def check_load_throttle(gpu: GpuLoad) -> Iterator[Finding]:
    known = [sample for sample in gpu.samples if sample.reasons is not None]
    if not known:
        yield unknown(gpu.label, "NVML does not report the reasons for reduced clocks")
        return
    counts = Counter(name for sample in known for name in clock_reasons(sample.reasons or 0))
    meanings = {
        row.name: row.meaning for row in all_clock_reasons() if row.severity is Severity.BAD
    }
    bad = {name: count for name, count in counts.items() if name in meanings}
    clocks = [sample.sm_mhz for sample in known if sample.sm_mhz is not None]
    temperatures = [sample.temperature_c for sample in known if sample.temperature_c is not None]
    powers = [sample.power_w for sample in known if sample.power_w is not None]
    state = (
        f"SM {min(clocks, default='?')} to {max(clocks, default='?')} of {gpu.sm_max_mhz or '?'}"
        f" MHz, {max(temperatures, default=None)} C, {max(powers, default=None)} W"
    )
    shares = [f"{name} {count / len(known):.0%}" for name, count in counts.most_common()]
    evidence = Evidence(
        f"NVML, {gpu.label}, {len(known)} samples",
        f"{', '.join(shares) or 'none'}; {state}",
        "no slowdown",
    )
    if bad:
        text = "; ".join(
            f"{meanings[name]} for {count / len(known):.0%} of the time"
            for name, count in bad.items()
        )
        report = failed if set(bad) & set(HARDWARE_REASONS) else warned
        yield report(
            gpu.label,
            f"clocks are reduced under load: {text}",
            evidence,
            fix=filled(LOAD_THROTTLE.fix, gpu=gpu.index),
        )
    else:
        yield passed(
            gpu.label,
            f"no throttling by heat, power brake or hardware under load: {state}",
            evidence,
        )
