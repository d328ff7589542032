"""The condition of GPUs from NVML, in one reading, for checks.

What a GPU or driver does not support is None.
"""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from typing import Any

import msgspec

from busbw.host import process
from busbw.host.gpu import sysfs_bus_id
from busbw.host.gpu_health import Fabric, GpuHealth, Gpus, Link, Process
from busbw.host.nvml import ask, field_value, start
from busbw.host.source import Source, Unavailable, once

CALL = "nvml_health"
READS = 0  # NVML_P2P_CAPS_INDEX_READ; in pynvml that name is a tuple by mistake
# NVML's counters of one link: of all generations up to Hopper, and the fields that replace them on
# Blackwell.
COUNTERS = {
    "replay": "REPLAY",
    "recovery": "RECOVERY",
    "crc_flit": "CRC_FLIT",
    "crc_data": "CRC_DATA",
    "ecc_data": "ECC_DATA",
}
FIELDS = {
    "recovery": "LINK_RECOVERY_EVENTS",
    "recovery_failed": "LINK_RECOVERY_FAILED_EVENTS",
    "effective": "EFFECTIVE_ERRORS",
}


@once
def read_health(source: Source) -> Gpus:
    """What NVML says of all GPUs, live or recorded."""
    reading = source.call(CALL, read_nvml)
    return (
        Gpus(reason=reading.reason)
        if reading.data is None
        else msgspec.json.decode(reading.data, type=Gpus)
    )


def read_nvml() -> str:
    """JSON of `collect`; Unavailable without package, library or driver."""
    nvml = start()
    try:
        return msgspec.json.encode(collect(nvml)).decode()
    except nvml.NVMLError as error:
        raise Unavailable(f"NVML: {error}") from error
    except AttributeError as error:
        raise Unavailable(f"the installed pynvml is too old: {error}") from error
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def collect(nvml: Any) -> Gpus:
    """All GPUs from an initialized `pynvml`; a GPU that cannot be read has only `error`."""
    gpus: list[GpuHealth] = []
    handles: list[tuple[int, Any]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(_Reader(nvml, handle).gpu(index))
            handles.append((index, handle))
        except nvml.NVMLError as error:
            gpus.append(GpuHealth(index=index, error=str(error)))
    peers = []
    for (one, first), (other, second) in combinations(handles, 2):
        status = ask(nvml, nvml.nvmlDeviceGetP2PStatus, first, second, READS)
        if status is not None:
            peers.append((one, other, int(status)))
    cuda = ask(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return Gpus(
        driver=ask(nvml, nvml.nvmlSystemGetDriverVersion) or "",
        cuda=cuda,
        gpus=tuple(gpus),
        peers=tuple(peers),
    )


class _Reader:
    """Reads one GPU and keeps the names of what is not supported."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._unsupported: list[str] = []
        self._failed: dict[str, str] = {}
        # Older drivers lack functions, or know only older versions of their structures.
        lacking = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH")
        self._lacking = {
            getattr(nvml, f"NVML_ERROR_{name}", nvml.NVML_ERROR_NOT_SUPPORTED) for name in lacking
        }

    def _get(self, field: str, function: str, *arguments: Any) -> Any:
        """The result of nvmlDeviceGet`function`; None on an error of NVML."""
        nvml = self._nvml
        try:
            return getattr(nvml, f"nvmlDeviceGet{function}")(self._handle, *arguments)
        except nvml.NVMLError as error:
            if error.value in self._lacking:
                self._unsupported.append(field)
            else:
                self._failed[field] = str(error)
            return None

    def gpu(self, index: int) -> GpuHealth:
        """All of it; NVMLError if not even the name can be read."""
        nvml, get = self._nvml, self._get
        name = nvml.nvmlDeviceGetName(self._handle)
        bus_id = sysfs_bus_id(nvml.nvmlDeviceGetPciInfo(self._handle).busId)
        memory = get("memory_bytes", "MemoryInfo", nvml.nvmlMemory_v2)
        capability = get("sm", "CudaComputeCapability")
        persistence, ecc, mig = (
            get("persistence", "PersistenceMode"),
            get("ecc", "EccMode"),
            get("mig", "MigMode"),
        )
        said: dict[str, Any] = {
            "vbios": get("vbios", "VbiosVersion"),
            "sm": capability and capability[0] * 10 + capability[1],
            "memory_bytes": memory and int(memory.total),
            "used_bytes": memory and int(memory.used),
            "persistence": None if persistence is None else bool(persistence),
            "ecc": ecc and bool(ecc[0]),
            "ecc_pending": ecc and bool(ecc[1]),
            "mig": mig and bool(mig[0]),
            "mig_pending": mig and bool(mig[1]),
            "compute_mode": get("compute_mode", "ComputeMode"),
            "pcie_replays": get("pcie_replays", "PcieReplayCounter"),
            "processes": self._processes(),
            "fabric": self._fabric(),
            "links": self._links(),
            "recovery_action": self._value("recovery_action", "GET_GPU_RECOVERY_ACTION"),
            "inforom": self._inforom(),
        }
        said |= self._memory_errors() | self._clocks() | self._limits()
        failed = {
            field: text for field, text in self._failed.items() if said.get(field) in (None, {})
        }
        unsupported = tuple(dict.fromkeys(self._unsupported))
        return GpuHealth(
            index=index, name=name, bus_id=bus_id, unsupported=unsupported, failed=failed, **said
        )

    def _memory_errors(self) -> dict[str, Any]:
        nvml, get = self._nvml, self._get
        places = {"dram": nvml.NVML_MEMORY_LOCATION_DRAM, "sram": nvml.NVML_MEMORY_LOCATION_SRAM}
        counts: dict[str, dict[str, int]] = {}
        for field, kind in (
            ("uncorrected", nvml.NVML_VOLATILE_ECC),
            ("uncorrected_ever", nvml.NVML_AGGREGATE_ECC),
        ):
            asked = (
                (
                    place,
                    get(
                        field,
                        "MemoryErrorCounter",
                        nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                        kind,
                        at,
                    ),
                )
                for place, at in places.items()
            )
            counts[field] = {place: count for place, count in asked if count is not None}
        sram = self._filled("sram_exceeded", "SramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
        pending = get("retired_pending", "RetiredPagesPendingStatus")
        return counts | {
            "sram_exceeded": None if sram is None else bool(sram.bThresholdExceeded),
            "remapped": get("remapped", "RemappedRows"),
            "retired_pending": None if pending is None else bool(pending),
        }

    def _clocks(self) -> dict[str, Any]:
        nvml, get = self._nvml, self._get
        sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
        reasons = get("reasons", "CurrentClocksEventReasons")
        return {
            # Drivers before 535 have only the former name of this call.
            "reasons": (
                reasons if reasons is not None else get("reasons", "CurrentClocksThrottleReasons")
            ),
            "sm_mhz": get("sm_mhz", "ClockInfo", sm),
            "sm_max_mhz": get("sm_max_mhz", "MaxClockInfo", sm),
            "memory_mhz": get("memory_mhz", "ClockInfo", memory),
            "memory_max_mhz": get("memory_max_mhz", "MaxClockInfo", memory),
            "app_mhz": get("app_mhz", "ApplicationsClock", sm),
            "app_default_mhz": get("app_default_mhz", "DefaultApplicationsClock", sm),
            "boost_mhz": get("boost_mhz", "MaxCustomerBoostClock", sm),
        }

    def _limits(self) -> dict[str, Any]:
        nvml, get = self._nvml, self._get
        return {
            "temperature_c": get("temperature_c", "Temperature", nvml.NVML_TEMPERATURE_GPU),
            "gpu_max_c": get(
                "gpu_max_c", "TemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX
            ),
            "slowdown_c": get(
                "slowdown_c", "TemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            "margin_c": get("margin_c", "MarginTemperature"),
            "memory_c": self._value("memory_c", "MEMORY_TEMP"),
            "memory_max_c": get(
                "memory_max_c", "TemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX
            ),
            "memory_margin_c": self._value("memory_margin_c", "TEMPERATURE_MEM_MAX_TLIMIT"),
            "power_limit_mw": get("power_limit_mw", "EnforcedPowerLimit"),
            "power_default_mw": get("power_default_mw", "PowerManagementDefaultLimit"),
        }

    def _processes(self) -> tuple[Process, ...] | None:
        found = self._get("processes", "ComputeRunningProcesses")
        return (
            None
            if found is None
            else tuple(Process(one.pid, one.usedGpuMemory, process.name(one.pid)) for one in found)
        )

    def _filled(self, field: str, function: str, structure: str) -> Any:
        """A structure of pynvml that nvmlDeviceGet`function` fills; None if driver or package
        lack it.
        """
        if not hasattr(self._nvml, structure):
            return None
        made = getattr(self._nvml, structure)()
        return None if self._get(field, function, ctypes.byref(made)) is None else made

    def _fabric(self) -> Fabric | None:
        for structure in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
            if (said := self._filled("fabric", "GpuFabricInfoV", structure)) is not None:
                cluster = bytes(said.clusterUuid).hex()
                return Fabric(
                    said.state,
                    said.status,
                    cluster if cluster.strip("0") else "",
                    said.cliqueId,
                    said.healthMask,
                )
        return None

    def _links(self) -> tuple[Link, ...] | None:
        """() without NVLink; None if NVML fails in another way."""
        nvml, handle, links = self._nvml, self._handle, []
        for number in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                active = bool(nvml.nvmlDeviceGetNvLinkState(handle, number))
            except nvml.NVMLError as error:
                if error.value in (nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_NOT_SUPPORTED):
                    continue  # beyond this GPU's last link, or no NVLink at all
                self._failed["links"] = str(error)
                return None
            links.append(self._link(number) if active else Link(number, active=False))
        return tuple(links)

    def _link(self, number: int) -> Link:
        nvml, handle = self._nvml, self._handle
        speed = self._fields({"speed": nvml.NVML_FI_DEV_NVLINK_GET_SPEED}, number) or self._fields(
            {"speed": nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON}, 0
        )
        names = {
            name: getattr(nvml, f"NVML_FI_DEV_NVLINK_COUNT_{field}", None)
            for name, field in FIELDS.items()
        }
        counters = (
            (name, getattr(nvml, f"NVML_NVLINK_ERROR_DL_{counter}"))
            for name, counter in COUNTERS.items()
        )
        counts = {
            name: ask(nvml, nvml.nvmlDeviceGetNvLinkErrorCounter, handle, number, counter)
            for name, counter in counters
        }
        errors = self._fields(
            {name: field for name, field in names.items() if field is not None}, number
        )
        return Link(
            number,
            active=True,
            remote=ask(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number),
            version=ask(nvml, nvml.nvmlDeviceGetNvLinkVersion, handle, number),
            speed_mbps=speed.get("speed"),
            errors=errors | {name: count for name, count in counts.items() if count is not None},
        )

    def _value(self, field: str, constant: str) -> int | None:
        """The field NVML_FI_DEV_`constant` of the GPU; None if driver, GPU or package lack it."""
        number = getattr(self._nvml, f"NVML_FI_DEV_{constant}", None)
        value = None if number is None else self._fields({field: number}, 0).get(field)
        if value is None:
            self._unsupported.append(field)
        return value

    def _inforom(self) -> bool | None:
        nvml = self._nvml
        validate = getattr(nvml, "nvmlDeviceValidateInforom", None)
        try:
            if validate:
                validate(self._handle)
                return True
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_CORRUPTED_INFOROM:
                return False
        self._unsupported.append("inforom")
        return None

    def _fields(self, names: dict[str, int], scope: int) -> dict[str, int]:
        asked: Callable[..., Any] = self._nvml.nvmlDeviceGetFieldValues
        values = (
            ask(self._nvml, asked, self._handle, [(field, scope) for field in names.values()]) or []
        )
        read = (
            (name, field_value(self._nvml, value))
            for name, value in zip(names, values, strict=False)
        )
        return {name: value for name, value in read if value is not None}
