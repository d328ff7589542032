"""Cases of the layer GPU and NVLink."""

import json

from healthy_gpu import changed, health, links, logged
from healthy_pcie import gpu_bdf
from loads import loaded, loading
from rack import IMEX, rack
from tree import Tree

MODULES = "nvidia 1 0 - Live 0x0\nnouveau 1 0 - Live 0x0"


def without(index: int):
    """One GPU of PCI is missing in NVML."""

    def change(tree: Tree) -> None:
        for call in ("nvml_health", "nvml"):
            gpus = json.loads(tree.calls[call]["text"])["gpus"]
            tree.update(call, gpus=gpus[:index] + gpus[index + 1 :])

    return change


XID = "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SXID = (
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV"
    " error (First)"
)

GPU = {
    "gpu-count": without(5),
    "gpu-missing": lambda tree: tree.drop(f"/sys/bus/pci/devices/{gpu_bdf(5)}"),
    "gpu-driver": lambda tree: tree.update("nvml_health", driver="570.172.08"),
    "gpu-nouveau": lambda tree: tree.file("/proc/modules", MODULES),
    "gpu-persistence": changed(persistence=False),
    "gpu-xid": logged(XID),
    "gpu-sxid": logged(SXID),
    "gpu-ecc-mode": changed(ecc=False, ecc_pending=False),
    "gpu-ecc-uncorrected": changed(uncorrected={"dram": 1, "sram": 0}),
    "gpu-remap-pending": changed(remapped=[0, 1, 1, 0]),
    "gpu-remap-failed": changed(remapped=[0, 9, 0, 1]),
    "gpu-throttle": changed(reasons=0x48),
    "gpu-clocks-locked": changed(app_mhz=1410),
    "gpu-temperature": changed(margin_c=0),
    "gpu-power-limit": changed(power_limit_mw=500000),
    "gpu-memory-in-use": changed(
        processes=[{"pid": 4711, "used_bytes": 1 << 34, "name": "python"}], used_bytes=1 << 34
    ),
    "gpu-compute-mode": changed(compute_mode=3),
    "gpu-mig": changed(mig=True, mig_pending=True),
    "gpu-uvm": lambda tree: tree.drop("/dev/nvidia-uvm").file("/dev/nvidia0", ""),
    "gpu-same-model": changed(vbios="96.00.74.00.01"),
    "gpu-cuda-driver": lambda tree: tree.call(
        "nccl_packages", json.dumps([["nvidia-nccl-cu13", "2.30.7"]])
    ),
    "gpu-p2p": lambda tree: tree.update(
        "nvml_health",
        peers=[[0, 1, 0], [0, 2, 4], [1, 2, 4]],
        gpus=[health(index) for index in range(3)],
    ),
    "gpu-load-throttle": (loaded(), loading(reasons=0x40)),
    "gpu-recovery-action": changed(recovery_action=1),
    "gpu-inforom": changed(inforom=False),
    "gpu-memory-temperature": changed(memory_c=96),
    "nvlink-links": changed(links=links(active=False)),
    "nvlink-speed": changed(links=links(speed_mbps=13281)),
    "nvlink-errors": changed(links=links(errors={"recovery": 505})),
    "nvswitch-missing": lambda tree: tree.drop("/sys/bus/pci/devices/0000:06:00.0"),
    "nvlink-fabric": changed(fabric={"state": 2, "status": 0}),
    "nvlink-fabric-manager-version": lambda tree: tree.call(
        "fabricmanager_version", "Fabric Manager version is : 570.133.20"
    ),
    "nvlink-imex": (
        rack(),
        lambda tree: tree.call(
            "imex", IMEX.replace("10.0.0.2        - READY", "10.0.0.2        - UNAVAILABLE")
        ),
    ),
}
