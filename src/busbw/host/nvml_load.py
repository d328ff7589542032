"""How busy GPUs are, from NVML: what an idle GPU lowers is no fault, and a kernel that only
waits keeps one busy at low power.
"""

import json
from typing import Any

import msgspec

from busbw.host.gpu import sysfs_bus_id
from busbw.host.nvml import ask, start
from busbw.host.source import Source


class GpuUse(msgspec.Struct, frozen=True):
    """How busy a GPU is: percent of NVML's last sample period in which a kernel ran, and watts."""

    index: int
    percent: int | None = None
    power_w: int | None = None
    limit_w: int | None = None


def read_load(nvml: Any = None) -> str:
    """JSON of the percent of NVML's last sample period in which a kernel ran, by PCI address;
    Unavailable as `start`.
    """
    nvml = start(nvml)
    try:
        handles = [
            ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
            for index in range(ask(nvml, nvml.nvmlDeviceGetCount) or 0)
        ]
        read = (
            (
                ask(nvml, nvml.nvmlDeviceGetPciInfo, one),
                ask(nvml, nvml.nvmlDeviceGetUtilizationRates, one),
            )
            for one in handles
            if one
        )
        return json.dumps(
            {sysfs_bus_id(pci.busId): int(rates.gpu) for pci, rates in read if pci and rates}
        )
    finally:
        nvml.nvmlShutdown()


def load(source: Source) -> dict[str, int]:
    """Percent by PCI address; GPUs that cannot be read are left out."""
    return dict(json.loads(source.call("nvml_load", read_load).text or "{}"))


def loads(nvml: Any = None) -> list[GpuUse]:
    """The GPUs that NVML lists with their power; Unavailable as `start`."""
    nvml = start(nvml)
    try:
        handles = [
            (index, ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index))
            for index in range(ask(nvml, nvml.nvmlDeviceGetCount) or 0)
        ]
        return [_load(nvml, index, handle) for index, handle in handles if handle]
    finally:
        nvml.nvmlShutdown()


def _load(nvml: Any, index: int, handle: Any) -> GpuUse:
    rates = ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power, limit = (
        ask(nvml, one, handle)
        for one in (nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetEnforcedPowerLimit)
    )
    watts = (None if mw is None else round(mw / 1000) for mw in (power, limit))
    return GpuUse(index, int(rates.gpu) if rates else None, *watts)
