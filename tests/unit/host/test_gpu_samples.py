"""Samples of a GPU through NVML. A stand-in shaped like `pynvml` is used at that boundary alone."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from busbw.host.gpu_samples import GpuSample, Sampler


class NVMLError(Exception):
    pass


def fake_nvml(
    enough: threading.Event, *, old: bool = False, milliwatts: int | None = 699_600
) -> Any:
    """One GPU; sets `enough` at the second sample.

    An `old` driver has only the former name of the reasons' call.
    """
    handles: list[str] = []

    def missing_field(*_: Any) -> int:
        raise NVMLError

    def reasons(handle: str) -> int:
        return missing_field() if old else 4

    def power(handle: str) -> int:
        handles.append(handle)
        if len(handles) == 2:
            enough.set()
        return missing_field() if milliwatts is None else milliwatts

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: handles.append("closed"),
        nvmlDeviceGetHandleByPciBusId=lambda bus: f"handle of {bus}",
        nvmlDeviceGetIndex=lambda _: 3,
        handles=handles,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda _: 5,
        nvmlDeviceGetMaxPcieLinkWidth=lambda _: 16,
        nvmlDeviceGetMaxClockInfo=lambda _, clock: 1980 if clock == 1 else 0,
        nvmlDeviceGetClockInfo=lambda _, clock: 1200 + clock,
        nvmlDeviceGetCurrPcieLinkGeneration=lambda _: 4,
        nvmlDeviceGetCurrPcieLinkWidth=lambda _: 8,
        nvmlDeviceGetCurrentClocksEventReasons=reasons,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 8,
        nvmlDeviceGetTemperature=lambda _, sensor: 61 + sensor,
        nvmlDeviceGetPowerUsage=power,
    )


@pytest.mark.parametrize(
    ("old", "milliwatts", "reasons", "watts"), [(False, 699_600, 4, 700), (True, None, 8, None)]
)
def test_samples_are_collected_while_the_context_is_open(
    old: bool, milliwatts: int | None, reasons: int, watts: int | None
) -> None:
    enough = threading.Event()
    nvml = fake_nvml(enough, old=old, milliwatts=milliwatts)
    sampler = Sampler("0000:1b:00", nvml)
    assert (sampler.index, sampler.gen_max, sampler.width_max, sampler.sm_max_mhz) == (
        3,
        5,
        16,
        1980,
    )
    with sampler.sampling() as samples:
        assert enough.wait(20)
    count = len(samples)
    assert count >= 2 and set(nvml.handles) == {"handle of 0000:1b:00.0"}
    times = [sample.at_s for sample in samples]
    assert times == sorted(times) and 0 < times[0] < 20, "seconds since the context began"
    assert times == [round(at_s, 4) for at_s in times]
    assert samples[0] == GpuSample(times[0], 4, 8, 1201, reasons, 61, watts)
    sampler.close()
    assert (nvml.handles[-1], len(samples)) == ("closed", count)
