"""The power limit of a GPU."""

from collections.abc import Iterator

from busbw.check.base import Check, judged
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW014",
    name="gpu-power-limit",
    layer=Layer.GPU,
    title="power limit",
    right="at or above the default of the board",
    why="A lower limit reduces clocks under load. Every collective waits for the GPU with the lowest limit.",
    fix="if the rack has the power, and nobody lowered the limit for it: nvidia-smi -i {gpu} -pl {watts}",
    stays="lost at the next reboot, like a lower limit; if the lower limit returns, a service sets it: look for nvidia-smi -pl",
    reads=("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit"),
    sources=("nvidia-smi manual, power limit",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    if gpu.power_limit_mw is None or gpu.power_default_mw is None:
        return unreported(gpu, "power_limit_mw" if gpu.power_limit_mw is None else "power_default_mw", "power limit")
    limit, default = gpu.power_limit_mw // 1000, gpu.power_default_mw // 1000
    return judged(
        right=limit >= default,
        subject=gpu.label,
        good=f"power limit {limit} W",
        bad=f"power limit {limit} W, below the default of {default} W",
        evidence=(said(gpu, "EnforcedPowerLimit", f"{limit} W", f"{default} W or more"),),
        fix=filled(ROW.fix, gpu=gpu.index, watts=default),
    )


CHECK = Check(ROW, look)
