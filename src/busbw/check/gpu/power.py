"""Power limits and temperatures of GPUs."""

from busbw.check.base import judged, not_offered
from busbw.check.gpu.per_gpu import nvml_evidence, per_gpu, unreported
from busbw.check.shell_words import filled
from busbw.check.types import Finding
from busbw.core.finding import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

TEMPERATURE = CheckRow(
    id="BW013",
    name="gpu-temperature",
    layer=Layer.GPU,
    title="temperature",
    right=(
        "below the GPU's maximum operating temperature, with more than 0 degrees left before it"
        " slows down"
    ),
    why=(
        "Above it the driver reduces the clocks, first slightly, then by half. A GPU near the limit"
        " when idle has no headroom under load."
    ),
    fix=(
        "check fans, air flow and inlet temperature of the chassis; nvidia-smi -i {gpu} -q -d"
        " TEMPERATURE"
    ),
    stays="yes, once the cooling is repaired",
    reads=(
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetMarginTemperature",
    ),
    sources=("nvml.h, nvmlTemperatureThresholds_t",),
)


@per_gpu(TEMPERATURE)
def check_temperature(gpu: GpuHealth) -> Finding:
    if gpu.temperature_c is None:
        return unreported(gpu, "temperature_c", "temperature")
    limit = gpu.gpu_max_c or gpu.slowdown_c
    if gpu.margin_c is not None:
        right, expected = gpu.margin_c > 0, "a margin above 0 C"
        value = f"{gpu.temperature_c} C, {gpu.margin_c} C below the slowdown"
    elif limit:
        right = gpu.temperature_c < limit
        expected = f"below {limit} C"
        value = f"{gpu.temperature_c} C"
    else:
        return not_offered(gpu.label, f"{gpu.temperature_c} C, but NVML reports no limit")
    return judged(
        right=right,
        subject=gpu.label,
        good=f"{gpu.temperature_c} C",
        bad=f"{gpu.temperature_c} C: at or above its limit",
        evidence=(nvml_evidence(gpu, "Temperature", value, expected),),
        fix=filled(TEMPERATURE.fix, gpu=gpu.index),
        weight=gpu.temperature_c,
    )


POWER_LIMIT = CheckRow(
    id="BW014",
    name="gpu-power-limit",
    layer=Layer.GPU,
    title="power limit",
    right="at or above the default of the board",
    why=(
        "A lower limit reduces clocks under load. Every collective waits for the GPU with the"
        " lowest limit."
    ),
    fix=(
        "if the rack has the power, and nobody lowered the limit for it: nvidia-smi -i {gpu} -pl"
        " {watts}"
    ),
    stays=(
        "after reboot: lost, like a lower limit; if the lower limit returns, a service sets it:"
        " look for nvidia-smi -pl"
    ),
    reads=("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit"),
    sources=("nvidia-smi manual, power limit",),
)


@per_gpu(POWER_LIMIT)
def check_power_limit(gpu: GpuHealth) -> Finding:
    if gpu.power_limit_mw is None or gpu.power_default_mw is None:
        return unreported(
            gpu,
            "power_limit_mw" if gpu.power_limit_mw is None else "power_default_mw",
            "power limit",
        )
    limit, default = gpu.power_limit_mw // 1000, gpu.power_default_mw // 1000
    return judged(
        right=limit >= default,
        subject=gpu.label,
        good=f"power limit {limit} W",
        bad=f"power limit {limit} W, below the default of {default} W",
        evidence=(nvml_evidence(gpu, "EnforcedPowerLimit", f"{limit} W", f"{default} W or more"),),
        fix=filled(POWER_LIMIT.fix, gpu=gpu.index, watts=default),
    )


MEMORY_TEMPERATURE = CheckRow(
    id="BW262",
    name="gpu-memory-temperature",
    layer=Layer.GPU,
    title="temperature of GPU memory (HBM)",
    right="below the maximum operating temperature of the memory",
    why=(
        "Memory that is too hot is refreshed more often and has more errors. The driver then "
        "reduces the clocks, though the GPU itself is cool."
    ),
    fix=(
        "check fans, air flow and inlet temperature of the chassis; nvidia-smi -i {gpu} -q -d "
        "TEMPERATURE; if only this GPU is hot, drain the host and check its heat sink"
    ),
    stays="yes, once the cooling is repaired",
    reads=(
        "NVML_FI_DEV_MEMORY_TEMP",
        "nvmlDeviceGetTemperatureThreshold (MEM_MAX)",
        "NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT",
    ),
    sources=("nvml.h, nvmlTemperatureThresholds_t and field identifiers",),
)


@per_gpu(MEMORY_TEMPERATURE)
def check_memory_temperature(gpu: GpuHealth) -> Finding:
    if gpu.memory_c is None:
        return not_offered(gpu.label, "its driver does not report the temperature of the memory")
    if gpu.memory_max_c:
        right = gpu.memory_c < gpu.memory_max_c
        value = f"{gpu.memory_c} C"
        expected = f"below {gpu.memory_max_c} C"
    elif gpu.margin_c is not None and gpu.memory_margin_c is not None:
        # Hopper and later have no limit in degrees: the margin of the GPU includes its memory.
        right = gpu.margin_c > gpu.memory_margin_c
        expected = f"a margin above {gpu.memory_margin_c} C"
        value = f"{gpu.memory_c} C, with a margin of {gpu.margin_c} C"
    else:
        return not_offered(gpu.label, f"memory at {gpu.memory_c} C, but NVML reports no limit")
    return judged(
        right=right,
        subject=gpu.label,
        good=f"memory at {gpu.memory_c} C",
        bad=f"memory at {gpu.memory_c} C: at or above its limit",
        evidence=(nvml_evidence(gpu, "FieldValues, NVML_FI_DEV_MEMORY_TEMP", value, expected),),
        fix=filled(MEMORY_TEMPERATURE.fix, gpu=gpu.index),
        weight=gpu.memory_c,
    )
