"""What slows a GPU now, and who uses it, from NVML: cheap enough to be read every few seconds."""

import time
from typing import Any

from busbw.core.link_samples import GpuState
from busbw.host import process
from busbw.host.host_vitals import clock_reasons
from busbw.host.nvml import ask

BUSY_US = 5_000_000  # of which NVML's samples of processes are taken
NOT_FOUND = 6  # NVML_ERROR_NOT_FOUND: no process was busy


def gpu_state(nvml: Any, bus: str, handle: Any) -> GpuState:
    """The state of a GPU; what NVML does not give is None."""
    power_mw = ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    rates = ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    running = ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    sm = nvml.NVML_CLOCK_SM
    return GpuState(
        bus=bus,
        index=ask(nvml, nvml.nvmlDeviceGetIndex, handle),
        sm_mhz=ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, sm),
        sm_max_mhz=ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, sm),
        reasons=clock_reasons(nvml, handle),
        temperature_c=ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if power_mw is None else round(power_mw / 1000),
        pcie_gen=ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_width=ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        pcie_width_max=ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        nvlinks=sum(
            bool(ask(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link))
            for link in range(nvml.NVML_NVLINK_MAX_LINKS)
        ),
        used=rates and int(rates.gpu),
        processes=None
        if running is None
        else {entry.pid: process.name(entry.pid) for entry in running},
        busy=_busy(nvml, handle),
    )


def _busy(nvml: Any, handle: Any) -> dict[int, int] | None:
    """Per cent of the multiprocessors' time by process, the most of the last samples."""
    since_us = int(time.time() * 1e6) - BUSY_US
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except nvml.NVMLError as error:
        return {} if error.value == NOT_FOUND else None
    busy: dict[int, int] = {}
    for sample in samples:
        busy[sample.pid] = max(sample.smUtil, busy.get(sample.pid, 0))
    return busy
