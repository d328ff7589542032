"""NVLink and PCIe of GPUs through NVML.

A stand-in shaped like `pynvml` is used at that boundary alone.
"""

import itertools
import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from busbw.host.gpu_traffic import ALL_LINKS, LONGEST_US, PCIE_RANGE, GpuTraffic, _pcie_rates

TX, RX, PCIE_TX, PCIE_RX, REPLAY = 138, 139, 197, 198, 52
RATE = 40e9  # bytes per second that the stand-in's PCIe counter grows by


class NVMLError(Exception):
    value = 0


def fake_nvml(*, pcie: bool = True, slow_us: int = 0) -> Any:
    """Two GPUs whose PCIe counter has 32 bits and is about to wrap."""
    queries: list[list[Any]] = []
    elapsed_us = itertools.count(step=500)  # a clock of its own: other programs do not slow it
    slept_us = 0

    def values(_handle: str, fields: list[Any]) -> list[Any]:
        queries.append(fields)

        def sample(field: Any) -> Any:
            number = field[0] if isinstance(field, tuple) else field
            nonlocal slept_us
            at_us = next(elapsed_us) + slept_us
            slept_us += slow_us * (len(queries) % 3)  # the value is from before the driver's delay
            count = {TX: 1000, RX: 2000, REPLAY: 3}.get(number)
            if number in (PCIE_TX, PCIE_RX) and pcie:
                count = round(PCIE_RANGE - 1e8 + RATE * at_us / 1e6) % PCIE_RANGE
            is_64_bit = number in (TX, RX)
            return SimpleNamespace(
                timestamp=at_us,
                nvmlReturn=3 if count is None else 0,
                valueType=3 if is_64_bit else 1,
                value=SimpleNamespace(ullVal=count, uiVal=count),
            )

        return [sample(field) for field in fields]

    def utilization(handle: str, _since_us: int) -> list[Any]:
        if handle == "1":
            raise NVMLError
        return [SimpleNamespace(pid=7, smUtil=percent) for percent in (3, 9, 5)]

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_SUCCESS=0,
        NVML_VALUE_TYPE_UNSIGNED_LONG_LONG=3,
        queries=queries,
        closed=[],
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=TX,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX=RX,
        NVML_FI_DEV_PCIE_COUNT_TX_BYTES=PCIE_TX,
        NVML_FI_DEV_PCIE_COUNT_RX_BYTES=PCIE_RX,
        NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL=REPLAY,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=str,
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:1{handle}:00.0"),
        nvmlDeviceGetFieldValues=values,
        nvmlDeviceGetCurrPcieLinkGeneration=lambda _: 5,
        nvmlDeviceGetCurrPcieLinkWidth=lambda _: 8,
        nvmlDeviceGetMaxPcieLinkWidth=lambda _: 16,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        NVML_NVLINK_MAX_LINKS=18,
        nvmlDeviceGetIndex=int,
        nvmlDeviceGetPowerUsage=lambda _: 120_400,
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=97, memory=3),
        nvmlDeviceGetClockInfo=lambda *_: 1410,
        nvmlDeviceGetMaxClockInfo=lambda *_: 1980,
        nvmlDeviceGetCurrentClocksEventReasons=lambda _: 0x40,
        nvmlDeviceGetTemperature=lambda *_: 88,
        nvmlDeviceGetNvLinkState=lambda _, link: int(link < 17),
        nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=os.getpid())],
        nvmlDeviceGetProcessUtilization=utilization,
    )


def test_traffic_of_every_gpu():
    session = GpuTraffic(fake_nvml())
    before = time.monotonic()
    traffic = session.traffic()
    assert session.buses == tuple(traffic) == ("0000:10:00", "0000:11:00")
    for at_s, values in traffic.values():
        assert before <= at_s <= time.monotonic()
        assert {
            name: values[name] for name in ("nvlink_tx", "nvlink_rx", "pcie_gen", "pcie_width")
        } == {"nvlink_tx": 1000, "nvlink_rx": 2000, "pcie_gen": 5, "pcie_width": 8}


def test_what_slows_a_gpu_and_who_uses_it():
    first, second = GpuTraffic(fake_nvml()).states()
    assert (first.bus, first.index, first.sm_mhz, first.sm_max_mhz) == ("0000:10:00", 0, 1410, 1980)
    assert (first.reasons, first.temperature_c, first.power_w) == (0x40, 88, 120)
    assert (first.pcie_width, first.pcie_width_max, first.nvlinks) == (8, 16, 17)
    assert list(first.processes or ()) == [os.getpid()]
    assert (first.busy, second.busy, first.used) == ({7: 9}, None, 97)


def test_rate_of_pcie_is_right_over_a_wrap_of_its_counter():
    session = GpuTraffic(fake_nvml())
    rates = [
        values["pcie_tx"]
        for _ in range(4)
        for _, values in session.traffic().values()
        if "pcie_tx" in values
    ]
    assert rates, "every reading was too slow"
    assert all(rate == pytest.approx(RATE, rel=0.01) for rate in rates), rates


def test_rate_of_pcie_is_right_when_the_driver_is_slow():
    session = GpuTraffic(fake_nvml(slow_us=2000))
    rates = [
        values["pcie_tx"]
        for _ in range(4)
        for _, values in session.traffic().values()
        if "pcie_tx" in values
    ]
    assert rates, "every reading was too slow"
    assert all(rate == pytest.approx(RATE, rel=0.01) for rate in rates), rates


def test_readings_too_far_apart_give_no_rate():
    assert _pcie_rates({"pcie_tx": (0, 5)}, {"pcie_tx": (LONGEST_US + 1, 9)}) == {}
    assert _pcie_rates({"pcie_tx": (0, 5)}, {"pcie_tx": (0, 9)}) == {}
    assert _pcie_rates({"pcie_tx": (0, 5)}, {"pcie_tx": (1000, 9)}) == {"pcie_tx": 4000}
    assert _pcie_rates({"pcie_tx": (0, 5)}, {"pcie_tx": (1, 9)}) == {"pcie_tx": 4_000_000}
    assert _pcie_rates({"pcie_tx": (0, 0)}, {"pcie_tx": (LONGEST_US, 30)}) == {"pcie_tx": 1000}


def test_a_counter_that_one_reading_lacks_has_no_rate():
    assert _pcie_rates({"pcie_tx": (0, 5)}, {"pcie_rx": (1000, 9)}) == {}


def test_a_gpu_that_does_not_answer_for_fields_has_no_counters():
    nvml = fake_nvml()

    def lost(_handle, _fields):
        raise NVMLError

    nvml.nvmlDeviceGetFieldValues = lost
    session = GpuTraffic(nvml)
    assert [values for _, values in session.traffic().values()] == [
        {"pcie_gen": 5, "pcie_width": 8}
    ] * 2
    assert [values for _, values in session.errors().values()] == [{}, {}]


def test_nvlink_is_asked_for_the_sum_of_all_links():
    nvml = fake_nvml()
    GpuTraffic(nvml).traffic()
    assert [(TX, ALL_LINKS), (RX, ALL_LINKS)] in nvml.queries


def test_counters_that_a_gpu_lacks_are_absent():
    _, values = GpuTraffic(fake_nvml(pcie=False)).traffic()["0000:10:00"]
    assert not {"pcie_tx", "pcie_rx"} & values.keys()


def test_errors_are_those_of_the_driver():
    assert [values for _, values in GpuTraffic(fake_nvml()).errors().values()] == [
        {"nvlink_replay": 3}
    ] * 2
