"""Whether a GPU was slowed down while a cell was measured, although NVML is not read for each
visit.
"""

import pytest

from busbw.core.result import RankDevice
from busbw.core.telemetry import GpuReading, HostReading
from busbw.host import host_vitals
from busbw.measure.host_sampler import HostSampler

HOT = 0x40  # NVML's HwThermalSlowdown
GPU = [RankDevice(0, 1, "h1", 0, "0000:1b:00", "GPU")]


class Vitals:
    """NVML is due when the test requests it, or when it is to be read again; it then gives the next
    of `reasons`.
    """

    def __init__(self, *_: object, gpu_share: float) -> None:
        self.reasons: list[int] = []
        self.gpus_due = False
        self.gpus = [GpuReading("0000:1b:00", reasons=0)]
        self.repeated_asks = 0

    def ask_gpus_again(self) -> None:
        self.gpus_due, self.repeated_asks = True, self.repeated_asks + 1

    def read(self) -> HostReading:
        if self.gpus_due:
            self.gpus_due, self.gpus = (
                False,
                [GpuReading("0000:1b:00", reasons=self.reasons.pop(0))],
            )
        return HostReading("h1", 0.0, self.gpus)


@pytest.fixture
def vitals(monkeypatch: pytest.MonkeyPatch) -> tuple[HostSampler, Vitals]:
    monkeypatch.setattr(host_vitals, "Vitals", Vitals)
    sampler = HostSampler(GPU)
    return sampler, sampler._vitals  # type: ignore[return-value]


def test_repeated_samples_are_judged_by_a_new_reading(vitals: tuple[HostSampler, Vitals]) -> None:
    sampler, nvml = vitals
    assert not sampler.throttled_since_last(), "NVML was not asked"
    nvml.reasons, nvml.gpus_due = [HOT, HOT, HOT, 0, 0], True
    assert [sampler.throttled_since_last() for _ in range(3)] == [True] * 3, (
        "hot in all three takes"
    )
    assert sampler.throttled_since_last(), "at the beginning of the fourth"
    assert not sampler.throttled_since_last()
    assert nvml.repeated_asks == 4


def test_a_slowdown_that_the_reading_of_a_row_saw_is_not_lost(
    vitals: tuple[HostSampler, Vitals],
) -> None:
    sampler, nvml = vitals
    nvml.reasons, nvml.gpus_due = [HOT, 0], True
    sampler.row()
    assert sampler.throttled_since_last()


def test_the_same_reading_is_judged_once(vitals: tuple[HostSampler, Vitals]) -> None:
    sampler, nvml = vitals
    nvml.reasons, nvml.gpus_due = [HOT, 0, 0], True
    assert sampler.throttled_since_last()
    sampler.row()
    sampler.throttled_since_last()
    nvml.gpus_due = True
    assert not sampler.throttled_since_last()
