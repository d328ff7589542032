"""Repeated readings through NVML.

A stand-in shaped like `pynvml` is used only at that boundary; tests/gpu reads real GPUs.
"""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from busbw.core.counters import Owner, counters_of
from busbw.core.telemetry import XidEvent
from busbw.host.host_vitals import GpuVitals, Session
from busbw.host.source import Unavailable


class NVMLError(Exception):
    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


def fake_nvml(*, events: bool = True, lost: str = "", old: bool = False) -> Any:
    """The part of pynvml that is used: two GPUs with all readings but power; `pending` errors
    wait in the event set.
    """

    def fail(code: int, text: str) -> Any:
        raise NVMLError(code, text)

    pending: list[tuple[str, int]] = []
    fields = {
        counter.read_from: number
        for number, counter in enumerate(counters_of(Owner.GPU), 100)
        if counter.name != "nvlink_crc_data"
    }

    def values(_handle: str, queried: list[int]) -> list[Any]:
        def value_of(field: int) -> Any:
            supported = field != fields["NVML_FI_DEV_ECC_DBE_VOL_TOTAL"]
            return SimpleNamespace(
                nvmlReturn=0 if supported else 3,
                valueType=3,
                value=SimpleNamespace(ullVal=field * 10, uiVal=0),
            )

        return [value_of(field) for field in queried]

    def wait(_set: object, timeout_ms: int) -> Any:
        assert timeout_ms == 0, "a reading must not wait"
        if not pending:
            fail(10, "Timeout")
        bus, code = pending.pop(0)
        return SimpleNamespace(device=bus, eventData=code)

    closed: list[str] = []
    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_SUCCESS=0,
        NVML_VALUE_TYPE_UNSIGNED_LONG_LONG=3,
        NVML_ERROR_TIMEOUT=10,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlEventTypeXidCriticalError=8,
        pending=pending,
        closed=closed,
        **fields,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: closed.append("nvml"),
        nvmlEventSetFree=lambda _: closed.append("events"),
        nvmlDeviceGetHandleByPciBusId=lambda bus: fail(15, "GPU is lost") if bus == lost else bus,
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"0000{handle.upper()}"),
        nvmlDeviceGetClockInfo=lambda _, kind: {1: 1410, 2: 2619}[kind],
        nvmlDeviceGetMaxClockInfo=lambda _, kind: {1: 1980, 2: 2619}[kind],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x8,
        nvmlDeviceGetTemperature=lambda *_: 88,
        nvmlDeviceGetCurrentClocksEventReasons=lambda _: (
            fail(13, "Function Not Found") if old else 0x40
        ),
        nvmlDeviceGetPowerUsage=lambda _: fail(3, "Not Supported"),
        nvmlDeviceGetFieldValues=values,
        nvmlEventSetCreate=(lambda: "set") if events else (lambda: fail(3, "Not Supported")),
        nvmlDeviceRegisterEvents=lambda *_: None,
        nvmlEventSetWait=wait,
    )


def read(session: Session) -> GpuVitals:
    return msgspec.json.decode(session.read(), type=GpuVitals)


def test_clocks_reasons_temperature_and_counters_of_a_gpu() -> None:
    nvml = fake_nvml()
    (gpu,) = read(Session(["0000:1b:00"], nvml)).gpus
    assert (gpu.bus, gpu.sm_mhz, gpu.sm_max_mhz, gpu.memory_mhz, gpu.memory_max_mhz) == (
        "0000:1b:00",
        1410,
        1980,
        2619,
        2619,
    )
    assert (gpu.reasons, gpu.temperature_c, gpu.power_w) == (0x40, 88, None)
    assert gpu.counters["ecc_corrected"] == nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL * 10
    assert "ecc_uncorrected" not in gpu.counters, "what the GPU does not support is absent"
    assert "nvlink_crc_data" not in gpu.counters, (
        "what this release of NVML does not know is not asked for"
    )


def test_an_older_driver_is_called_by_the_old_function_name() -> None:
    assert read(Session(["0000:1b:00"], fake_nvml(old=True))).gpus[0].reasons == 0x8


def test_critical_errors_are_in_the_next_reading_once() -> None:
    nvml = fake_nvml()
    session = Session(["0000:1b:00", "0000:9d:00"], nvml)
    nvml.pending += [("0000:9d:00.0", 74), ("0000:9d:00.0", 74), ("0000:1b:00.0", 31)]
    assert read(session).events == [XidEvent("0000:9d:00", 74, 2), XidEvent("0000:1b:00", 31)]
    assert read(session).events == []
    session.close()
    assert nvml.closed == ["events", "nvml"]


def test_a_reading_has_64_critical_errors_at_most() -> None:
    nvml = fake_nvml()
    session = Session(["0000:1b:00"], nvml)
    nvml.pending += [("0000:1b:00.0", 31)] * 65
    assert [read(session).events for _ in range(3)] == [
        [XidEvent("0000:1b:00", 31, 64)],
        [XidEvent("0000:1b:00", 31)],
        [],
    ]


def test_events_are_asked_for_of_the_gpus_that_can_be_read() -> None:
    nvml, registrations = fake_nvml(lost="0000:9d:00.0"), list[tuple[object, ...]]()

    def refuse(*words: object) -> None:
        registrations.append(words)
        raise NVMLError(3, "Not Supported")

    nvml.nvmlDeviceRegisterEvents = lambda *words: registrations.append(words)
    Session(["0000:1b:00", "0000:9d:00"], nvml)
    assert registrations == [("0000:1b:00.0", 8, "set")]
    nvml.nvmlDeviceRegisterEvents = refuse
    vitals = read(Session(["0000:1b:00"], nvml))
    assert (vitals.reason, vitals.events, nvml.closed) == (
        "NVML events: Not Supported",
        [],
        ["events"],
    )


def test_a_gpu_without_fields_has_no_counters() -> None:
    nvml = fake_nvml()
    nvml.nvmlDeviceGetFieldValues = lambda handle, _fields: nvml.nvmlDeviceGetPowerUsage(handle)
    (gpu,) = read(Session(["0000:1b:00"], nvml)).gpus
    assert (gpu.counters, gpu.sm_mhz) == ({}, 1410)


def test_without_events_all_other_readings_remain() -> None:
    vitals = read(Session(["0000:1b:00"], fake_nvml(events=False)))
    assert vitals.reason == "NVML events: Not Supported" and vitals.gpus[0].sm_mhz == 1410


def test_a_lost_gpu_is_listed_without_readings() -> None:
    first, second = read(Session(["0000:1b:00", "0000:9d:00"], fake_nvml(lost="0000:9d:00.0"))).gpus
    assert first.sm_mhz == 1410 and (second.bus, second.sm_mhz, second.counters) == (
        "0000:9d:00",
        None,
        {},
    )


def test_without_a_driver_the_real_package_gives_a_reason() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(Unavailable, match="did not start: "):
            Session(["0000:1b:00"])
    else:
        pynvml.nvmlShutdown()
        pytest.skip("a driver is here: tests/gpu reads its GPUs")
