"""Clocks set below what the GPU can do."""

from collections.abc import Iterator

from busbw.check.base import Check, passed, warned
from busbw.check.gpu.each import each, said, unreported
from busbw.check.machine import Machine
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer
from busbw.host.gpu_health import GpuHealth

ROW = CheckRow(
    id="BW012",
    name="gpu-clocks-locked",
    layer=Layer.GPU,
    title="clocks set below the default",
    right="the application clock is at its default or above, and the boost clock may reach the maximum",
    why="Clocks that were set for a test or to save power stay until they are reset. The GPU is then slower than others of its model.",
    fix="nvidia-smi -i {gpu} -rac; nvidia-smi -i {gpu} -rgc",
    stays="a reboot clears the setting too; remove it from the script or service that sets it",
    reads=("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock", "nvmlDeviceGetMaxCustomerBoostClock"),
    sources=("nvidia-smi manual, clocks",),
)


def look(machine: Machine) -> Iterator[Found]:
    """Each GPU."""
    return each(machine, _judge)


def _judge(gpu: GpuHealth) -> Found:
    fix = filled(ROW.fix, gpu=gpu.index)
    app, default, boost, largest = gpu.app_mhz, gpu.app_default_mhz, gpu.boost_mhz, gpu.sm_max_mhz
    evidence = []
    if app is not None and default is not None:
        evidence.append(said(gpu, "ApplicationsClock", f"{app} MHz", f"{default} MHz"))
        if app < default:
            return warned(gpu.label, f"application clock set to {app} MHz, below the default of {default}", *evidence, fix=fix)
    if boost is not None and largest is not None:
        evidence.append(said(gpu, "MaxCustomerBoostClock", f"{boost} MHz", f"{largest} MHz"))
        if boost < largest:
            return warned(gpu.label, f"boost clock limited to {boost} of {largest} MHz", *evidence, fix=fix)
    if not evidence:
        return unreported(gpu, "boost_mhz", "application and boost clocks")
    return passed(gpu.label, "neither application nor boost clock is limited", *evidence)


CHECK = Check(ROW, look)
