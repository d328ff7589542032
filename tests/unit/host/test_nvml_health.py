"""The condition of GPUs through NVML.

A stand-in shaped like `pynvml` is used only at that boundary.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.host.gpu_health import FabricState, GpuHealth, Nvlink, NvmlGpus, Process
from busbw.host.nvml_health import COUNTERS, FIELDS, READS, collect, read_health, read_nvml
from busbw.host.snapshot import parse_archive

UUID = (ctypes.c_uint8 * 16)(*range(16))

ZERO = (
    "InitWithFlags Shutdown DeviceGetPersistenceMode DeviceGetEccMode DeviceGetMigMode"
    " DeviceGetComputeMode DeviceGetPcieReplayCounter DeviceGetMemoryErrorCounter"
    " DeviceGetRemappedRows DeviceGetRetiredPagesPendingStatus DeviceGetCurrentClocksEventReasons"
    " DeviceGetClockInfo DeviceGetMaxClockInfo DeviceGetApplicationsClock"
    " DeviceGetDefaultApplicationsClock DeviceGetMaxCustomerBoostClock DeviceGetTemperature"
    " DeviceGetTemperatureThreshold DeviceGetEnforcedPowerLimit"
    " DeviceGetPowerManagementDefaultLimit DeviceGetComputeRunningProcesses_v3"
    " DeviceGetNvLinkRemoteDeviceType DeviceGetNvLinkVersion DeviceValidateInforom"
    " DeviceGetVbiosVersion DeviceGetSerial SystemGetDriverVersion SystemGetCudaDriverVersion_v2"
)
# Offsets are those of the structures in nvml.h.
DRIVER = """
#include <string.h>
typedef unsigned long long u64;
int nvmlDeviceGetCount_v2(int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(u64)(index + 1); return 0; }
int nvmlDeviceGetName(void *h, char *name, unsigned size) { strncpy(name, "NVIDIA H100 80GB HBM3", size); return 0; }
int nvmlDeviceGetPciInfo_v3(void *h, char *info) { strcpy(info + 36, "00000000:1B:00.0"); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *h, char *info) { *(u64 *)(info + 32) = 4096; return 0; }
int nvmlDeviceGetP2PStatus(void *one, void *other, int caps, int *status) { *status = caps ? 9 : 4; return 0; }
int nvmlDeviceGetMarginTemperature(void *h, int *info) { info[1] = 56; return 0; }
int nvmlDeviceGetSramEccErrorStatus(void *h, int *info) { info[24] = 1; return 0; }
int nvmlDeviceGetGpuFabricInfoV(void *h, int *info) { info[6] = 7; info[7] = 3; info[8] = 0xAA; return 0; }
int nvmlDeviceGetNvLinkState(void *h, unsigned link, int *on) { *on = link == 0; return 0; }
int nvmlDeviceGetNvLinkErrorCounter(void *h, unsigned link, int counter, u64 *count) { *count = 12; return 0; }
int nvmlDeviceGetFieldValues(void *h, int count, int *values) {
  for (int i = 0; i < count; i++) { values[10 * i + 6] = 1; values[10 * i + 7] = 0; values[10 * i + 8] = 26562; }
  return 0;
}
""" + "".join(f"int nvml{name}() {{ return 0; }}\n" for name in ZERO.split())


class NVMLError(Exception):
    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


class FabricInfo(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint32),
    ]


class SramStatus(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("bThresholdExceeded", ctypes.c_uint)]


def fail(code: int, text: str = "Not Supported") -> Any:
    raise NVMLError(code, text)


def fake_nvml(**changes: Any) -> Any:
    """The part of pynvml that is used: two GPUs with two links each, of which the second is
    down.
    """

    def fabric(_handle: str, reference: Any) -> int:
        info = reference._obj
        info.clusterUuid, info.state, info.status, info.cliqueId, info.healthMask = (
            UUID,
            3,
            0,
            7,
            0xAA,
        )
        return 0

    def sram(_handle: str, reference: Any) -> int:
        reference._obj.bThresholdExceeded = 1
        return 0

    def values(_handle: str, queried: list[tuple[int, int]]) -> list[Any]:
        values_by_field = {164: 26562, 215: 505, 82: 43, 195: -2, 230: 4}
        return [
            SimpleNamespace(
                nvmlReturn=0 if field in values_by_field else 3,
                valueType=5 if values_by_field.get(field, 0) < 0 else 1,
                value=SimpleNamespace(
                    uiVal=values_by_field.get(field), siVal=values_by_field.get(field), ullVal=0
                ),
            )
            for field, _scope in queried
        ]

    def state(_handle: str, link: int) -> int:
        return 1 if link == 0 else 0 if link == 1 else fail(2, "Invalid Argument")

    functions = {
        "Count": lambda: 2,
        "HandleByIndex": lambda index: f"gpu{index}",
        "Name": lambda _: "NVIDIA H100 80GB HBM3",
        "PciInfo": lambda handle: SimpleNamespace(
            busId=f"00000000:{'1B' if handle == 'gpu0' else '43'}:00.0"
        ),
        "P2PStatus": lambda _one, _other, index: 0 if index == READS else fail(3),
        "VbiosVersion": lambda _: "96.00",
        "Serial": lambda _: "1653723052734",
        "CudaComputeCapability": lambda _: (9, 0),
        "MemoryInfo": lambda _, version: SimpleNamespace(total=80 << 30, used=version),
        "PersistenceMode": lambda _: 1,
        "EccMode": lambda _: [1, 0],
        "MigMode": lambda _: fail(3),
        "ComputeMode": lambda _: 0,
        "PcieReplayCounter": lambda _: 4,
        "MemoryErrorCounter": lambda _, _kind, since, place: since * 10 + place,
        "SramEccErrorStatus": sram,
        "RemappedRows": lambda _: (1, 2, 0, 0),
        "RetiredPagesPendingStatus": lambda _: fail(3),
        "CurrentClocksEventReasons": lambda _: 0x1,
        "CurrentClocksThrottleReasons": lambda _: 0x4,
        "ClockInfo": lambda _, kind: 345 + kind,
        "MaxClockInfo": lambda _, kind: 1980 + kind,
        "ApplicationsClock": lambda *_: 1980,
        "DefaultApplicationsClock": lambda *_: 1980,
        "MaxCustomerBoostClock": lambda *_: fail(999, "Unknown Error"),
        "Temperature": lambda *_: 31,
        "TemperatureThreshold": lambda _, kind: {3: 87, 1: 90}.get(kind) or fail(3),
        "MarginTemperature": lambda _: 56,
        "EnforcedPowerLimit": lambda _: 700000,
        "PowerManagementDefaultLimit": lambda _: 700000,
        "ComputeRunningProcesses": lambda _: [SimpleNamespace(pid=2**22 + 1, usedGpuMemory=None)],
        "GpuFabricInfoV": fabric,
        "NvLinkState": state,
        "FieldValues": values,
        "NvLinkErrorCounter": lambda _, _link, counter: counter,
        "NvLinkRemoteDeviceType": lambda *_: 2,
        "NvLinkVersion": lambda *_: fail(3),
    }
    constants = {
        "NVML_ERROR_NOT_SUPPORTED": 3,
        "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": 25,
        "NVML_ERROR_INVALID_ARGUMENT": 2,
        "NVML_SUCCESS": 0,
        "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG": 3,
        "nvmlMemory_v2": 9,
        "NVML_MEMORY_LOCATION_DRAM": 2,
        "NVML_MEMORY_LOCATION_SRAM": 7,
        "NVML_VOLATILE_ECC": 0,
        "NVML_AGGREGATE_ECC": 1,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_TEMPERATURE_THRESHOLD_GPU_MAX": 3,
        "NVML_TEMPERATURE_THRESHOLD_MEM_MAX": 2,
        "NVML_FI_DEV_MEMORY_TEMP": 82,
        "NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT": 195,
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230,
        "NVML_ERROR_CORRUPTED_INFOROM": 14,
        "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
        "NVML_NVLINK_MAX_LINKS": 4,
        "NVML_FI_DEV_NVLINK_GET_SPEED": 164,
        "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON": 90,
        "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS": 215,
        **{f"NVML_NVLINK_ERROR_DL_{name}": number for number, name in enumerate(COUNTERS.values())},
    }
    attributes = {
        f"nvmlDeviceGet{name}": function for name, function in (functions | changes).items()
    }
    attributes |= {"nvmlDeviceValidateInforom": changes.get("ValidateInforom", lambda _: None)}
    return SimpleNamespace(
        NVMLError=NVMLError,
        c_nvmlGpuFabricInfo_v2_t=FabricInfo,
        c_nvmlEccSramErrorStatus_v1_t=SramStatus,
        nvmlSystemGetDriverVersion=lambda: "570.158.01",
        nvmlSystemGetCudaDriverVersion_v2=lambda: 12080,
        **constants,
        **attributes,
    )


def test_all_values_of_a_gpu() -> None:
    gpus = collect(fake_nvml())
    assert (gpus.driver, gpus.cuda, gpus.peers) == ("570.158.01", 12080, ((0, 1, 0),))
    gpu, _ = gpus.gpus
    assert (gpu.label, gpu.bus_id, gpu.vbios) == ("GPU 0", "0000:1b:00.0", "96.00")
    assert (gpu.sm, gpu.used_bytes) == (90, 9)
    assert (gpu.persistence, gpu.ecc, gpu.ecc_pending) == (True, True, False)
    assert (gpu.mig, gpu.boost_mhz) == (None, None)
    assert gpu.uncorrected == {"dram": 2, "sram": 7}
    assert gpu.uncorrected_ever == {"dram": 12, "sram": 17}
    assert (gpu.sram_exceeded, gpu.remapped) == (True, (1, 2, 0, 0))
    assert (gpu.sm_mhz, gpu.memory_max_mhz) == (346, 1982)
    assert (gpu.gpu_max_c, gpu.slowdown_c, gpu.margin_c) == (87, 90, 56)
    assert gpu.processes == (Process(2**22 + 1),), (
        "no process of Linux has this pid, so it has no name"
    )
    assert gpu.fabric is not None
    assert (gpu.fabric.state, gpu.fabric.clique, gpu.fabric.cluster) == (
        3,
        7,
        "000102030405060708090a0b0c0d0e0f",
    )


@pytest.mark.parametrize(
    ("changes", "unsupported", "failed"),
    [
        ({}, set(), {}),
        (
            {"Temperature": lambda *_: fail(15, "GPU is lost")},
            set(),
            {"temperature_c": "GPU is lost"},
        ),
        (
            {"MemoryErrorCounter": lambda *_: fail(999, "Unknown Error")},
            set(),
            dict.fromkeys(("uncorrected", "uncorrected_ever"), "Unknown Error"),
        ),
        ({"NvLinkState": lambda *_: fail(999, "Unknown Error")}, set(), {"links": "Unknown Error"}),
        ({"MarginTemperature": lambda _: fail(13, "Function Not Found")}, {"margin_c"}, {}),
        (
            {"SramEccErrorStatus": lambda *_: fail(25, "Argument Version Mismatch")},
            {"sram_exceeded"},
            {},
        ),
        # Another function gave the value.
        ({"CurrentClocksEventReasons": lambda _: fail(999, "Unknown Error")}, set(), {}),
    ],
)
def test_missing_functions_differ_from_failed_calls(
    changes: dict[str, Any], unsupported: set[str], failed: dict[str, str]
) -> None:
    gpu = collect(fake_nvml(**changes)).gpus[0]
    assert set(gpu.unsupported) == {"mig", "retired_pending", "memory_max_c"} | unsupported
    assert gpu.failed == {"boost_mhz": "Unknown Error"} | failed


def test_recommended_action_memory_and_inforom() -> None:
    gpu = collect(fake_nvml()).gpus[0]
    assert (gpu.recovery_action, gpu.inforom) == (4, True)
    assert (gpu.memory_c, gpu.memory_max_c, gpu.memory_margin_c) == (43, None, -2)
    assert (
        collect(fake_nvml(ValidateInforom=lambda _: fail(14, "Corrupted infoROM"))).gpus[0].inforom
        is False
    )
    older = collect(
        fake_nvml(ValidateInforom=lambda _: fail(3), FieldValues=lambda *_: fail(3))
    ).gpus[0]
    assert (older.recovery_action, older.inforom, older.memory_c) == (None, None, None)
    assert {"recovery_action", "inforom", "memory_c"} <= set(older.unsupported)


def test_links_have_counters_of_both_generations() -> None:
    up, down = collect(fake_nvml()).gpus[1].links or ()
    assert down == Nvlink(1, active=False)
    assert (up.active, up.remote, up.version, up.speed_mbps) == (True, 2, None, 26562)
    assert up.errors == {name: number for number, name in enumerate(COUNTERS)}, (
        "the older counter wins where both are"
    )
    newer = collect(fake_nvml(NvLinkErrorCounter=lambda *_: fail(3))).gpus[0].links
    assert newer is not None and newer[0].errors == {"recovery": 505}


def test_gpu_without_nvlink_differs_from_unreadable_links() -> None:
    assert collect(fake_nvml(NvLinkState=lambda *_: fail(3))).gpus[0].links == ()
    assert collect(fake_nvml(NvLinkState=lambda *_: fail(999))).gpus[0].links is None


def test_fabric_without_other_hosts_has_no_cluster() -> None:
    def fabric_of_one(_handle: str, reference: Any) -> int:
        reference._obj.state = 3
        return 0

    fabric = collect(fake_nvml(GpuFabricInfoV=fabric_of_one)).gpus[0].fabric
    assert fabric is not None and (fabric.state, fabric.cluster) == (3, "")
    assert collect(fake_nvml(GpuFabricInfoV=lambda *_: fail(3))).gpus[0].fabric is None


def test_lost_gpu_has_only_its_error() -> None:
    first, second = collect(
        fake_nvml(HandleByIndex=lambda index: fail(15, "GPU is lost") if index else "gpu0")
    ).gpus
    assert first.name and second == GpuHealth(index=1, error="GPU is lost")


def test_older_driver_is_asked_for_throttle_reasons() -> None:
    gpu = collect(
        fake_nvml(CurrentClocksEventReasons=lambda _: fail(13, "Function Not Found"))
    ).gpus[0]
    assert gpu.reasons == 0x4


def test_every_name_exists_in_the_real_package() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name in vars(fake_nvml()):
        assert hasattr(pynvml, name), name
    assert all(hasattr(pynvml, f"NVML_FI_DEV_NVLINK_COUNT_{name}") for name in FIELDS.values())
    assert hasattr(pynvml, "c_nvmlGpuFabricInfo_v3_t")


def test_real_package_passes_all_arguments(
    library: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library of a few lines of C stands for the driver's, so that pynvml converts every
    argument and result.
    """
    pynvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library(DRIVER, "libnvidia-ml.so"))))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpus = msgspec.json.decode(read_nvml(), type=NvmlGpus)
    first, second = gpus.gpus
    assert (gpus.peers, first.name, second.bus_id, first.unsupported) == (
        ((0, 1, 4),),
        "NVIDIA H100 80GB HBM3",
        "0000:1b:00.0",
        (),
    )
    assert (first.sm, first.used_bytes, first.processes, first.margin_c, first.sram_exceeded) == (
        90,
        4096,
        (),
        56,
        True,
    )
    assert first.fabric == FabricState(state=3, status=0, clique=7, health_mask=0xAA)
    assert (
        first.links is not None
        and first.links[0].errors["replay"] == 12
        and first.links[0].speed_mbps == 26562
    )
    assert None not in (
        first.persistence,
        first.ecc,
        first.mig,
        first.remapped,
        first.retired_pending,
        first.reasons,
        first.boost_mhz,
    )
    assert (
        first.uncorrected == {"dram": 0, "sram": 0}
        and len(first.links) == pynvml.NVML_NVLINK_MAX_LINKS
    )


@given(
    st.builds(
        GpuHealth,
        index=st.integers(0, 15),
        ecc=st.none() | st.booleans(),
        remapped=st.none() | st.tuples(*[st.integers(0, 9)] * 4),
    )
)
def test_a_snapshot_returns_the_recorded_values(gpu: GpuHealth) -> None:
    gpus = NvmlGpus(driver="1", gpus=(gpu,), peers=((0, 1, 4),))
    lines = [
        {"schema": "busbw.host/1"},
        {"call": "nvml_health", "text": msgspec.json.encode(gpus).decode()},
    ]
    assert (
        read_health(parse_archive("\n".join(msgspec.json.encode(line).decode() for line in lines)))
        == gpus
    )


def test_a_snapshot_without_the_call_gives_the_reason() -> None:
    assert read_health(parse_archive('{"schema": "busbw.host/1"}')) == NvmlGpus(
        reason="the recording has no 'nvml_health'"
    )
