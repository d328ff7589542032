"""GPUs through NVML.

A stand-in shaped like `pynvml` is used only at that boundary, since machines without a driver run
these tests; the recorded answer of a real driver is in test_hosts.py, and the real import path
without a driver is tried below.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from busbw.host.gpu import nvlink_rate, pcie_rate, read_gpus, sysfs_bus_id
from busbw.host.nvml import collect, read_nvml
from busbw.host.snapshot import parse_archive
from busbw.host.source import Reading, Source, Unavailable


class NVMLError(Exception):
    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


def fake_nvml(
    *, links: int = 12, common: int | None = 25000, per_link: int | None = None, lost: bool = False
) -> Any:
    """The part of pynvml that is used, with one GPU like an A100 (and a second one that is
    lost).
    """

    def fail(code: int, text: str) -> Any:
        raise NVMLError(code, text)

    def handle(index: int) -> int:
        return index if index == 0 else fail(15, "GPU is lost")

    def state(_handle: int, link: int) -> int:
        return (0 if link == 3 else 1) if link < links else fail(2, "Invalid Argument")

    def fields(_handle: int, queried: list[Any]) -> list[Any]:
        value = per_link if isinstance(queried[0], tuple) else common
        return [
            SimpleNamespace(
                nvmlReturn=0 if value else 3,
                valueType=1,
                value=SimpleNamespace(uiVal=value or 0, ullVal=0),
            )
        ]

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_NVLINK_MAX_LINKS=18,
        NVML_ERROR_INVALID_ARGUMENT=2,
        NVML_ERROR_NOT_SUPPORTED=3,
        NVML_SUCCESS=0,
        NVML_VALUE_TYPE_UNSIGNED_LONG_LONG=3,
        NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON=90,
        NVML_FI_DEV_NVLINK_GET_SPEED=164,
        nvmlSystemGetDriverVersion=lambda: "550.1",
        nvmlDeviceGetCount=lambda: 2 if lost else 1,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetName=lambda _: "NVIDIA A100-SXM4-80GB",
        nvmlDeviceGetPciInfo=lambda _: SimpleNamespace(busId="00000000:3B:00.0"),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=80 << 30),
        nvmlDeviceGetCudaComputeCapability=lambda _: (8, 0),
        nvmlDeviceGetCurrPcieLinkGeneration=lambda _: 1,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda _: 4,
        nvmlDeviceGetCurrPcieLinkWidth=lambda _: 16,
        nvmlDeviceGetMaxPcieLinkWidth=lambda _: fail(3, "Not Supported"),
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkVersion=lambda *_: 4,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda *_: 2,
        nvmlDeviceGetFieldValues=fields,
    )


def machine(document: object) -> Source:
    return parse_archive(
        json.dumps({"schema": "busbw.host/1"})
        + "\n"
        + json.dumps({"call": "nvml", "text": json.dumps(document)})
    )


def test_a_gpu_with_a_link_down_and_an_unsupported_reading() -> None:
    (gpu,) = read_gpus(machine(collect(fake_nvml()))).gpus
    assert (gpu.name, gpu.bus_id, gpu.sm, gpu.memory_bytes) == (
        "NVIDIA A100-SXM4-80GB",
        "0000:3b:00.0",
        80,
        80 << 30,
    )
    assert (gpu.nvlink, gpu.nvlink_rate, gpu.nvls) == (11, 25e9, False)
    assert (gpu.pcie, gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max) == (
        31.5e9,
        1,
        4,
        16,
        None,
    )


def test_the_slowest_link_counts_or_the_nvlink_version() -> None:
    assert (
        read_gpus(machine(collect(fake_nvml(common=None, per_link=20000)))).gpus[0].nvlink_rate
        == 20e9
    )
    assert read_gpus(machine(collect(fake_nvml(common=None)))).gpus[0].nvlink_rate == 25e9


def test_a_gpu_without_nvlink_has_zero_links() -> None:
    (gpu,) = read_gpus(machine(collect(fake_nvml(links=0)))).gpus
    assert (gpu.nvlink, gpu.nvlink_rate) == (0, None)


def test_an_unresponsive_gpu_is_named() -> None:
    gpus = read_gpus(machine(collect(fake_nvml(lost=True))))
    assert (
        len(gpus.gpus) == 1
        and gpus.reason == "NVML cannot read GPU 1: GPU is lost"
        and gpus.driver == "550.1"
    )


def test_a_host_without_gpus_gives_a_reason() -> None:
    assert read_gpus(machine({"driver": "550.1", "gpus": []})).reason == "NVML lists no GPU"


def test_values_that_nvml_does_not_report_are_unknown() -> None:
    (gpu,) = read_gpus(
        machine(
            {"driver": None, "gpus": [{"index": 3, "name": "H100", "bus_id": "00000000:1B:00.0"}]}
        )
    ).gpus
    assert (gpu.index, gpu.bus_id, gpu.memory_bytes, gpu.sm) == (3, "0000:1b:00.0", 0, 0)
    assert (gpu.nvlink, gpu.nvlink_rate, gpu.pcie, gpu.nvls, gpu.numa, gpu.pcie_gen) == (None,) * 6


def test_the_real_package_without_a_driver_gives_a_reason() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(Unavailable, match="NVML, the NVIDIA driver's library, did not start: "):
            read_nvml()
    else:
        pynvml.nvmlShutdown()
        assert json.loads(read_nvml())["gpus"], "a driver that starts lists its GPUs"


def test_a_missing_package_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    # as the import system fails for a missing module
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(Unavailable, match="nvidia-ml-py is not installed"):
        read_nvml()


@pytest.mark.parametrize(
    ("mbps", "sm", "versions", "rate"),
    [
        (26562, 90, [7], 25e9),  # Hopper's signalling rate
        (53125, 100, [7], 50e9),
        (25781, 70, [2], 25e9),
        (25000, 80, [4], 25e9),
        (14062, 86, [5], 14.0625e9),
        (None, 90, [7, 7], 25e9),  # Hopper whose driver says version 5.0
        (None, 100, [7], 50e9),
        (None, 70, [2, None], 25e9),
        (None, 86, [5], None),
        (None, 80, [], None),
    ],
)
def test_the_nominal_rate_of_a_link(
    mbps: int | None, sm: int, versions: list[int | None], rate: float | None
) -> None:
    assert nvlink_rate(mbps, sm, versions) == rate


def test_pcie_by_generation_and_width() -> None:
    assert [pcie_rate(generation, 16) for generation in range(1, 7)] == [
        4e9,
        8e9,
        15.75e9,
        31.5e9,
        63e9,
        126e9,
    ]
    assert (
        pcie_rate(5, 8) == 31.5e9
        and pcie_rate(None, 16) is None
        and pcie_rate(5, None) is None
        and pcie_rate(9, 16) is None
    )


def test_bus_ids_take_the_form_of_sysfs() -> None:
    assert (
        sysfs_bus_id("00000000:1B:00.0") == "0000:1b:00.0"
        and sysfs_bus_id("0001:00:06.0") == "0001:00:06.0"
    )


def test_a_reading_without_data_has_no_text() -> None:
    assert Reading(None, "why").text is None
