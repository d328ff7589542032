"""GPUs of the healthy server as NVML, the kernel log and NVIDIA's services describe them."""

import json

from healthy_pcie import gpu_bdf
from tree import Change, Tree

DRIVER = "570.158.01"
MODULE = (
    f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build "
    " (dvs-builder@U22)"
)
SERVICES = """Id=nvidia-fabricmanager.service
LoadState=loaded
ActiveState=active

Id=nvidia-imex.service
LoadState=not-found
ActiveState=inactive"""
BOOT = {"at_s": 12.5, "text": "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64"}
NOW_S = 1_000_000.0


def gpu(index: int) -> dict[str, object]:
    """What NVML says about one: idle, so its PCIe link is at generation 1."""
    link = {"state": 1, "version": 7, "remote": 2, "speed_mbps": 26562}
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "bus_id": f"0000{gpu_bdf(index)}".upper(),
        "compute_capability": [9, 0],
        "memory_bytes": 85520809984,
        "pcie_gen": 1,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlink_speed_mbps": None,
        "nvlink": [{"link": number, **link} for number in range(18)],
    }


def health(index: int) -> dict[str, object]:
    """Its condition: no error, at its default settings, unused but not idle."""
    errors = {"replay": 0, "recovery": 0, "crc_flit": 0}
    link = {"active": True, "remote": 2, "version": 7, "speed_mbps": 26562, "errors": errors}
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "bus_id": gpu_bdf(index),
        "vbios": "96.00.A5.00.01",
        "serial": f"165372305273{index}",
        "sm": 90,
        "memory_bytes": 85520809984,
        "used_bytes": 4194304,
        "persistence": True,
        "ecc": True,
        "ecc_pending": True,
        "uncorrected": {"dram": 0, "sram": 0},
        "uncorrected_ever": {"dram": 0, "sram": 0},
        "sram_exceeded": False,
        "remapped": [0, 0, 0, 0],
        "reasons": 0,
        "sm_mhz": 1980,
        "sm_max_mhz": 1980,
        "memory_mhz": 2619,
        "memory_max_mhz": 2619,
        "app_mhz": 1980,
        "app_default_mhz": 1980,
        "boost_mhz": 1980,
        "temperature_c": 31,
        "gpu_max_c": 87,
        "margin_c": 56,
        "power_limit_mw": 700000,
        "power_default_mw": 700000,
        "compute_mode": 0,
        "processes": [],
        "mig": False,
        "mig_pending": False,
        "fabric": {"state": 3, "status": 0, "health_mask": 0xAA},
        "links": [{"number": number, **link} for number in range(18)],
        "pcie_replays": 0,
        "memory_c": 43,
        "memory_max_c": 95,
        "recovery_action": 0,
        "inforom": True,
        "unsupported": ["retired_pending"],
    }


def add(tree: Tree, gpus: int) -> None:
    """To the tree."""
    tree.call("nvml", json.dumps({"driver": DRIVER, "gpus": [gpu(index) for index in range(gpus)]}))
    peers = [[first, second, 0] for first in range(gpus) for second in range(first + 1, gpus)]
    tree.call(
        "nvml_health",
        json.dumps(
            {
                "driver": DRIVER,
                "cuda": 12080,
                "gpus": [health(index) for index in range(gpus)],
                "peers": peers,
            }
        ),
    )
    tree.call("kmsg", json.dumps({"now_s": NOW_S, "begins_s": 0.0, "lines": [BOOT]}))
    tree.call("nvidia_services", SERVICES).call(
        "fabricmanager_version", f"Fabric Manager version is : {DRIVER}"
    )
    tree.call("nccl_packages", json.dumps([["nvidia-nccl-cu12", "2.27.7"]]))
    tree.file("/proc/driver/nvidia/version", MODULE).file("/dev/nvidia-uvm", "")
    for number in range(4):
        tree.files(
            f"/sys/bus/pci/devices/0000:0{number + 5}:00.0",
            vendor="0x10de",
            **{"class": "0x068000"},
        )


def changed(index: int = 2, **values: object) -> Change:
    """A change of one GPU's condition."""

    def change(tree: Tree) -> None:
        gpus = json.loads(tree.calls["nvml_health"]["text"])["gpus"]
        gpus[index] |= values
        tree.update("nvml_health", gpus=gpus)

    return change


def all_changed(**values: object) -> Change:
    """A change of all GPUs' condition."""

    def change(tree: Tree) -> None:
        tree.update(
            "nvml_health",
            gpus=[
                gpu_health | values
                for gpu_health in json.loads(tree.calls["nvml_health"]["text"])["gpus"]
            ],
        )

    return change


def logged(*lines: str, ago_s: float = 60.0) -> Change:
    """More lines in the kernel log."""
    more = [{"at_s": NOW_S - ago_s, "text": line} for line in lines]
    return lambda tree: tree.update(
        "kmsg", lines=[*json.loads(tree.calls["kmsg"]["text"])["lines"], *more]
    )


def links(count: int = 18, **values: object) -> list[dict[str, object]]:
    """Links of a GPU, of which the fourth has other values."""
    entries = [
        {
            "number": number,
            "active": True,
            "remote": 2,
            "version": 7,
            "speed_mbps": 26562,
            "errors": {"recovery": 0},
        }
        for number in range(count)
    ]
    return [entry | values if entry["number"] == 3 else entry for entry in entries]
