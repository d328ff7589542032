"""The condition of GPUs from NVML, in one reading, for checks.

What a GPU or driver does not support is None.
"""

import ctypes
from contextlib import suppress
from itertools import combinations, starmap
from typing import Any

import msgspec

from busbw.host import process
from busbw.host.gpu import sysfs_bus_id
from busbw.host.gpu_health import FabricState, GpuHealth, Nvlink, NvmlGpus, Process
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
def read_health(source: Source) -> NvmlGpus:
    """The condition of all GPUs, live or recorded."""
    reading = source.call(CALL, read_nvml)
    if reading.data is None:
        return NvmlGpus(reason=reading.reason)
    try:
        return msgspec.json.decode(reading.data, type=NvmlGpus)
    except msgspec.ValidationError:
        table = msgspec.json.decode(reading.data, type=dict[str, Any])
        entries = msgspec.convert(table.pop("gpus", []), list[dict[str, Any]])
        fields, _ = _understood(NvmlGpus, table)
        return NvmlGpus(**fields, gpus=tuple(starmap(_gpu, enumerate(entries))))


def _gpu(place: int, table: dict[str, Any]) -> GpuHealth:
    """A GPU without the values that are of another type than NVML's."""
    fields, odd = _understood(GpuHealth, table)
    failed = {name: f"it is {value!r}" for name, value in odd.items()}
    return GpuHealth(**({"index": place} | fields | {"failed": failed | fields.get("failed", {})}))


def _understood(
    kind: type[msgspec.Struct], table: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of fields that have the type of the field, and the others."""
    fields, odd = {}, {}
    for field in msgspec.structs.fields(kind):
        if field.name in table:
            value = table[field.name]
            try:
                fields[field.name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                odd[field.name] = value
    return fields, odd


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


def collect(nvml: Any) -> NvmlGpus:
    """All GPUs from an initialized `pynvml`; a GPU that cannot be read has only `error`."""
    gpus: list[GpuHealth] = []
    handles: list[tuple[int, Any]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(_GpuHealthReader(nvml, handle).gpu(index))
            handles.append((index, handle))
        except nvml.NVMLError as error:
            gpus.append(GpuHealth(index=index, error=str(error)))
    peers = []
    for (index_a, handle_a), (index_b, handle_b) in combinations(handles, 2):
        status = ask(nvml, nvml.nvmlDeviceGetP2PStatus, handle_a, handle_b, READS)
        if status is not None:
            peers.append((index_a, index_b, int(status)))
    cuda = ask(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return NvmlGpus(
        driver=ask(nvml, nvml.nvmlSystemGetDriverVersion) or "",
        cuda=cuda,
        gpus=tuple(gpus),
        peers=tuple(peers),
    )


class _GpuHealthReader:
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
        """The GPU's condition; NVMLError if not even the name can be read."""
        nvml, get = self._nvml, self._get
        name = nvml.nvmlDeviceGetName(self._handle)
        bus_id = sysfs_bus_id(nvml.nvmlDeviceGetPciInfo(self._handle).busId)
        memory = get("memory_bytes", "MemoryInfo", nvml.nvmlMemory_v2)
        capability = get("sm", "CudaComputeCapability")
        persistence = get("persistence", "PersistenceMode")
        ecc = get("ecc", "EccMode")
        mig = get("mig", "MigMode")
        values: dict[str, Any] = {
            "vbios": get("vbios", "VbiosVersion"),
            "serial": get("serial", "Serial"),
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
        values |= self._memory_errors() | self._clocks() | self._limits()
        failed = {
            field: text for field, text in self._failed.items() if values.get(field) in (None, {})
        }
        unsupported = tuple(dict.fromkeys(self._unsupported))
        return GpuHealth(
            index=index, name=name, bus_id=bus_id, unsupported=unsupported, failed=failed, **values
        )

    def _memory_errors(self) -> dict[str, Any]:
        nvml, get = self._nvml, self._get
        uncorrected = self._uncorrected("uncorrected", nvml.NVML_VOLATILE_ECC)
        uncorrected_ever = self._uncorrected("uncorrected_ever", nvml.NVML_AGGREGATE_ECC)
        sram = self._fill("sram_exceeded", "SramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
        pending = get("retired_pending", "RetiredPagesPendingStatus")
        return {
            "uncorrected": uncorrected,
            "uncorrected_ever": uncorrected_ever,
            "sram_exceeded": None if sram is None else bool(sram.bThresholdExceeded),
            "remapped": get("remapped", "RemappedRows"),
            "retired_pending": None if pending is None else bool(pending),
        }

    def _uncorrected(self, field: str, period: int) -> dict[str, int]:
        """Uncorrected ECC errors by location; `period` is NVML's constant of what is counted."""
        nvml = self._nvml
        locations = {"dram": nvml.NVML_MEMORY_LOCATION_DRAM, "sram": nvml.NVML_MEMORY_LOCATION_SRAM}
        kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        counts = {}
        for name, location in locations.items():
            count = self._get(field, "MemoryErrorCounter", kind, period, location)
            if count is not None:
                counts[name] = count
        return counts

    def _clocks(self) -> dict[str, Any]:
        nvml, get = self._nvml, self._get
        sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
        reasons = get("reasons", "CurrentClocksEventReasons")
        if reasons is None:  # drivers before 535 have only the former name of this call
            reasons = get("reasons", "CurrentClocksThrottleReasons")
        return {
            "reasons": reasons,
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
        running = self._get("processes", "ComputeRunningProcesses")
        if running is None:
            return None
        return tuple(
            Process(entry.pid, entry.usedGpuMemory, process.name(entry.pid)) for entry in running
        )

    def _fill(self, field: str, function: str, structure: str) -> Any:
        """The structure of pynvml, filled by nvmlDeviceGet`function`.

        None if the driver or the package lacks it.
        """
        if not hasattr(self._nvml, structure):
            return None
        target = getattr(self._nvml, structure)()
        return None if self._get(field, function, ctypes.byref(target)) is None else target

    def _fabric(self) -> FabricState | None:
        for structure in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
            info = self._fill("fabric", "GpuFabricInfoV", structure)
            if info is not None:
                uuid = bytes(info.clusterUuid).hex()
                cluster = uuid if uuid.strip("0") else ""
                return FabricState(info.state, info.status, cluster, info.cliqueId, info.healthMask)
        return None

    def _links(self) -> tuple[Nvlink, ...] | None:
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
            links.append(self._link(number) if active else Nvlink(number, active=False))
        return tuple(links)

    def _link(self, number: int) -> Nvlink:
        nvml, handle = self._nvml, self._handle
        speed = self._fields({"speed": nvml.NVML_FI_DEV_NVLINK_GET_SPEED}, number) or self._fields(
            {"speed": nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON}, 0
        )
        return Nvlink(
            number,
            active=True,
            remote=ask(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number),
            version=ask(nvml, nvml.nvmlDeviceGetNvLinkVersion, handle, number),
            speed_mbps=speed.get("speed"),
            errors=self._link_errors(number),
        )

    def _link_errors(self, number: int) -> dict[str, int]:
        nvml = self._nvml
        fields = {}
        for name, suffix in FIELDS.items():
            field = getattr(nvml, f"NVML_FI_DEV_NVLINK_COUNT_{suffix}", None)
            if field is not None:
                fields[name] = field
        errors = self._fields(fields, number)
        for name, suffix in COUNTERS.items():
            counter = getattr(nvml, f"NVML_NVLINK_ERROR_DL_{suffix}")
            count = ask(nvml, nvml.nvmlDeviceGetNvLinkErrorCounter, self._handle, number, counter)
            if count is not None:
                errors[name] = count
        return errors

    def _value(self, field: str, constant: str) -> int | None:
        """The field NVML_FI_DEV_`constant` of the GPU; None if GPU, driver or package lacks it."""
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

    def _fields(self, fields: dict[str, int], scope: int) -> dict[str, int]:
        """The values of fields, by name; those without a value are left out."""
        nvml = self._nvml
        scoped = [(field, scope) for field in fields.values()]
        answers = ask(nvml, nvml.nvmlDeviceGetFieldValues, self._handle, scoped) or []
        values = {}
        for name, answer in zip(fields, answers, strict=False):
            value = field_value(nvml, answer)
            if value is not None:
                values[name] = value
        return values
