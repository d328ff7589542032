"""The change between two readings of real GPUs, and the duration of a reading."""

import os
import platform
import time
from contextlib import closing
from statistics import median

import pytest

from busbw.core.result import RankDevice
from busbw.core.telemetry import change
from busbw.engines.cuda_runtime import CudaGpu
from busbw.host.host_vitals import Vitals

pytestmark = pytest.mark.gpu
# of one GPU; a reading of eight with their ports is to stay near 3 ms on an idle host
READING_S = 0.01


@pytest.fixture
def devices(gpus: int) -> list[RankDevice]:
    opened = [CudaGpu(index) for index in range(gpus)]
    return [
        RankDevice(gpu.index, os.getpid(), platform.node(), gpu.index, gpu.bus, gpu.name)
        for gpu in opened
    ]


def test_clocks_temperature_and_counters_of_every_gpu_are_read(
    devices: list[RankDevice], record_property
) -> None:
    with closing(Vitals(devices)) as vitals:
        before = vitals.read()
        after = vitals.read()
    assert [gpu.bus for gpu in after.gpus] == [device.bus for device in devices]
    for gpu in after.gpus:
        assert gpu.sm_mhz and gpu.sm_max_mhz and gpu.memory_mhz, gpu
        assert gpu.sm_mhz <= gpu.sm_max_mhz
        assert gpu.temperature_c and 10 < gpu.temperature_c < 110, gpu
        assert gpu.reasons is not None and gpu.counters, gpu
    readings = change(before, after)
    assert len(readings.sm_mhz) == len(devices) and readings.events == []
    record_property("change", repr(readings))


def test_a_reading_is_cheap(devices: list[RankDevice], record_property) -> None:
    with closing(Vitals(devices)) as vitals:
        vitals.read()
        durations_s = []
        for _ in range(50):
            start = time.perf_counter()
            vitals.read()
            durations_s.append(time.perf_counter() - start)
    record_property("reading_us", round(median(durations_s) * 1e6))
    print(f"{len(devices)} GPUs: {median(durations_s) * 1e6:.0f} us a reading")
    assert median(durations_s) < READING_S * len(devices)
