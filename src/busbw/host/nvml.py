"""The GPUs' facts from NVML as plain data in NVML's own units.

NVML comes with the optional package nvidia-ml-py (module `pynvml`). What a GPU or driver does not
support is None.
"""

import importlib
import json
from collections.abc import Callable
from typing import Any

from busbw.host.source import Unavailable

SIGNED_INT = 5  # NVML_VALUE_TYPE_SIGNED_INT, which older versions of pynvml do not name


def start(nvml: Any = None) -> Any:
    """The module `pynvml`, or `nvml` instead of it, after its initialization.

    Unavailable without package, library or driver.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
    except ImportError as error:
        raise Unavailable("the Python package nvidia-ml-py is not installed") from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise Unavailable(f"NVML, the NVIDIA driver's library, did not start: {error}") from error
    return nvml


def read_nvml() -> str:
    """JSON of `collect`; Unavailable as `start`."""
    nvml = start()
    try:
        return json.dumps(collect(nvml))
    except nvml.NVMLError as error:
        raise Unavailable(f"NVML: {error}") from error
    except AttributeError as error:
        raise Unavailable(f"the installed pynvml is too old: {error}") from error
    finally:
        nvml.nvmlShutdown()


def collect(nvml: Any) -> dict[str, Any]:
    """{"driver", "gpus": [...]} from an initialized `pynvml`.

    A GPU that cannot be read is {"index", "error"}.
    """
    gpus: list[dict[str, Any]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(_gpu(nvml, handle, index))
        except nvml.NVMLError as error:
            gpus.append({"index": index, "error": str(error)})
    return {"driver": ask(nvml, nvml.nvmlSystemGetDriverVersion), "gpus": gpus}


def _gpu(nvml: Any, handle: Any, index: int) -> dict[str, Any]:
    capability = ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return {
        "index": index,
        "name": nvml.nvmlDeviceGetName(handle),
        "bus_id": nvml.nvmlDeviceGetPciInfo(handle).busId,
        "compute_capability": list(capability) if capability else None,
        "memory_bytes": int(memory.total) if memory else None,
        "pcie_gen": ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_gen_max": ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width": ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_max": ask(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "nvlink_speed_mbps": _field(nvml, handle, nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON),
        "nvlink": _links(nvml, handle),
    }


def _links(nvml: Any, handle: Any) -> list[dict[str, Any]] | None:
    """State, version, speed and far end of each of the GPU's links.

    [] without NVLink, None if NVML fails in another way.
    """
    links = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            state = int(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_NOT_SUPPORTED):
                continue  # beyond this GPU's last link, or no NVLink at all
            return None
        version = ask(nvml, nvml.nvmlDeviceGetNvLinkVersion, handle, link)
        remote = ask(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        # Hopper's driver reports a speed per link, older ones one speed for all links.
        speed = _field(nvml, handle, (nvml.NVML_FI_DEV_NVLINK_GET_SPEED, link))
        links.append(
            {
                "link": link,
                "state": state,
                "version": version,
                "remote": remote,
                "speed_mbps": speed,
            }
        )
    return links


def _field(nvml: Any, handle: Any, field: int | tuple[int, int]) -> int | None:
    values = ask(nvml, nvml.nvmlDeviceGetFieldValues, handle, [field])
    return field_value(nvml, values[0]) if values else None


def field_value(nvml: Any, answer: Any) -> int | None:
    """The integer in an answer of nvmlDeviceGetFieldValues.

    None if the GPU or its driver does not support the field.
    """
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        return None
    if answer.valueType == SIGNED_INT:
        return int(answer.value.siVal)
    wide = answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    return int(answer.value.ullVal if wide else answer.value.uiVal)


def ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result; None on an error of NVML."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def count() -> int | None:
    """Number of GPUs according to NVML; None without NVML. CUDA would take longer to start."""
    try:
        nvml = start()
    except Unavailable:
        return None
    try:
        number: int | None = ask(nvml, nvml.nvmlDeviceGetCount)
        return number
    finally:
        nvml.nvmlShutdown()
