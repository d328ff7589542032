"""Samples of one GPU's PCIe link, clock, heat and power from NVML, taken by a thread while the
GPU works.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from busbw.host.host_vitals import clock_reasons
from busbw.host.nvml import ask, start

INTERVAL_S = 0.025


class GpuSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reading. What NVML does not give is None."""

    at_s: float  # seconds after the first reading
    gen: int | None = None
    width: int | None = None
    sm_mhz: int | None = None
    reasons: int | None = None  # bits of core/clock_reasons.csv
    temperature_c: int | None = None
    power_w: int | None = None


class Sampler:
    """An NVML session on the GPU with the bus id `bus` ("0000:1b:00"), to be closed.

    Unavailable as `start`.
    """

    def __init__(self, bus: str, nvml: Any = None) -> None:
        self._nvml = nvml = start(nvml)
        self._handle = handle = ask(nvml, nvml.nvmlDeviceGetHandleByPciBusId, f"{bus}.0")
        self.index: int | None = ask(nvml, nvml.nvmlDeviceGetIndex, handle)
        self.gen_max: int | None = ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
        self.width_max: int | None = ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
        self.sm_max_mhz: int | None = ask(
            nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM
        )

    @contextmanager
    def sampling(self) -> Iterator[list[GpuSample]]:
        """Take samples during the context, into the list that it gives."""
        samples: list[GpuSample] = []
        ended, start_s = threading.Event(), time.monotonic()

        def sample() -> None:
            while not ended.wait(INTERVAL_S):
                samples.append(self._sample(round(time.monotonic() - start_s, 4)))

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            ended.set()
            thread.join()

    def _sample(self, at_s: float) -> GpuSample:
        nvml, handle = self._nvml, self._handle
        power_mw = ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuSample(
            at_s=at_s,
            gen=ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            width=ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            sm_mhz=ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            reasons=clock_reasons(nvml, handle),
            temperature_c=ask(
                nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if power_mw is None else round(power_mw / 1000),
        )

    def close(self) -> None:
        ask(self._nvml, self._nvml.nvmlShutdown)
