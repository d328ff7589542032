"""GPUs of the healthy server as NVML describes them."""

import json

from healthy_pcie import gpu_bdf
from tree import Tree


def gpu(index: int) -> dict[str, object]:
    """What NVML says about one: idle, so its PCIe link is at generation 1."""
    link = {"state": 1, "version": 7, "remote": 2, "speed_mbps": 26562}
    return {
        "index": index, "name": "NVIDIA H100 80GB HBM3", "bus_id": f"0000{gpu_bdf(index)}".upper(), "compute_capability": [9, 0],
        "memory_bytes": 85520809984, "pcie_gen": 1, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16,
        "nvlink_speed_mbps": None, "nvlink": [{"link": number, **link} for number in range(18)],
    }  # fmt: skip


def add(tree: Tree, gpus: int) -> None:
    """To the tree."""
    tree.call("nvml", json.dumps({"driver": "570.158.01", "gpus": [gpu(index) for index in range(gpus)]}))
