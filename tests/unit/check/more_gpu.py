"""Variants of the layer GPU: which one is named, and at which limit."""

import json

from cases_gpu import MODULES, SXID, XID, without
from healthy import healthy
from healthy_gpu import all_changed, changed, health, logged
from healthy_pcie import DEVICES, gpu_bdf
from loads import loading
from tree import Change, Tree, combine

GPU = f"{DEVICES}/{gpu_bdf(2)}"
WITHHELD, LOST = "Insufficient Permissions", "GPU is lost"
PACKAGE = [["nvidia-nccl-cu12", "2.27.7"]]


def nvml(**values: object) -> Change:
    """What NVML says of all."""
    return lambda tree: tree.update("nvml_health", **values)


def container(tree: Tree) -> Tree:
    return tree.file("/.dockerenv", "")


def slurm(tree: Tree) -> None:
    """In a job of Slurm."""
    tree.update("environment", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0")


def without_driver(tree: Tree) -> None:
    tree.file("/proc/modules", "mlx5_core 1 0 - Live 0x0")


def display(tree: Tree) -> None:
    """Cards for a screen."""
    for index in range(8):
        tree.file(f"{DEVICES}/{gpu_bdf(index)}/class", "0x030000")


def off_the_bus(tree: Tree) -> None:
    tree.data(f"{GPU}/config", b"\xff" * 64)


def peers(*statuses: int, gpus: int = 6) -> Change:
    """Peer access of the first pairs."""
    pairs = [(first, other) for first in range(gpus) for other in range(first + 1, gpus)]
    pair_states = [[*pair, status] for pair, status in zip(pairs, statuses, strict=False)]
    return nvml(peers=pair_states, gpus=[health(index) for index in range(gpus)])


def gpus_with_xid(*numbers: int) -> Change:
    """Xids of one GPU."""
    return logged(*(XID.replace(": 79,", f": {number},") for number in numbers))


MORE_GPU = {
    "gpu-count": {
        "off the bus": off_the_bus,
        "off the bus, and not in NVML": combine(off_the_bus, without(2)),
        "off the bus, and another not in NVML": combine(off_the_bus, without(4)),
        "off the bus, and lost in NVML": combine(off_the_bus, changed(2, error=LOST, bus_id="")),
        "one that does not answer": changed(error=LOST),
        "one without address that does not answer": changed(error=LOST, bus_id=""),
        "two without address that do not answer": combine(
            changed(2, error=LOST, bus_id=""), changed(4, error=LOST, bus_id="")
        ),
        "one without address, and one too few": combine(
            changed(2, error=LOST, bus_id=""),
            lambda tree: nvml(gpus=json.loads(tree.calls["nvml_health"]["text"])["gpus"][:7])(tree),
        ),
        "one that is withheld": changed(error=WITHHELD),
        "one lost in a call": changed(failed={"temperature_c": LOST}),
        "NVML fails": nvml(gpus=[], reason="Driver/library version mismatch"),
        "NVML fails in a container": combine(
            container,
            lambda tree: tree.file("/dev/nvidiactl", ""),
            nvml(gpus=[], reason="Unknown Error"),
        ),
        "NVML lists none": nvml(gpus=[]),
        "two too few": lambda tree: nvml(
            gpus=json.loads(tree.calls["nvml_health"]["text"])["gpus"][:6]
        )(tree),
        "one too few in a job": combine(
            slurm,
            lambda tree: nvml(gpus=json.loads(tree.calls["nvml_health"]["text"])["gpus"][:7])(tree),
        ),
        "PCI is not known": lambda tree: tree.drop("/sys/bus/pci"),
    },
    "gpu-driver": {
        "another version": nvml(driver="570.172.08"),
        "mismatch": nvml(gpus=[], reason="Driver/library version mismatch"),
        "mismatch without a module": combine(
            nvml(gpus=[], reason="Driver/library version mismatch"),
            lambda tree: tree.drop("/proc/driver/nvidia/version"),
        ),
        "not loaded": combine(nvml(gpus=[], reason="no driver"), without_driver),
        "proprietary": lambda tree: tree.file(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.158.01",
        ),
        "no version": lambda tree: tree.file("/proc/driver/nvidia/version", "NVRM"),
    },
    "gpu-persistence": {
        "not reported": changed(persistence=None),
        "failed": changed(persistence=None, failed={"persistence": "Unknown Error"}),
        "withheld": changed(persistence=None, failed={"persistence": WITHHELD}),
        "not supported": changed(persistence=None, unsupported=["persistence"]),
        "one that does not answer": changed(error=LOST),
        "one that is withheld": changed(error=WITHHELD),
        "NVML lists none": nvml(gpus=[]),
        "NVML lists none in a container": combine(container, nvml(gpus=[])),
        "NVML lists none, with a reason": nvml(gpus=[], reason="Unknown Error"),
        "no package": nvml(gpus=[], reason="nvidia-ml-py is not installed"),
        "no driver": combine(nvml(gpus=[]), without_driver),
        "cards for a screen with a driver": combine(nvml(gpus=[]), display),
        "cards for a screen": combine(nvml(gpus=[]), display, without_driver),
        "cards for a screen, modules not known": combine(
            nvml(gpus=[]), display, lambda tree: tree.drop("/proc/modules").drop("/sys/module")
        ),
    },
    "gpu-xid": {
        "four": gpus_with_xid(79, 48, 94, 63),
        "five": gpus_with_xid(79, 48, 94, 63, 119),
        "six": gpus_with_xid(79, 48, 94, 63, 119, 31),
        "twice": logged(XID, XID),
    },
    "gpu-sxid": {"twice": logged(SXID, SXID)},
    "gpu-memory-in-use": {
        "the most first": combine(
            changed(2, processes=[{"pid": 1, "used_bytes": 1, "name": "a"}], used_bytes=1 << 33),
            changed(4, processes=[{"pid": 2, "used_bytes": 1, "name": ""}], used_bytes=1 << 34),
        ),
        "how much is not known": changed(
            processes=[{"pid": 1, "used_bytes": None, "name": "a"}], used_bytes=None
        ),
        "in a container": combine(
            container,
            changed(processes=[{"pid": 1, "used_bytes": None, "name": "a"}], used_bytes=1 << 34),
        ),
        "no process": changed(used_bytes=1 << 31),
        "exactly so much": changed(used_bytes=1 << 30),
        "exactly so much beside a CPU": changed(used_bytes=1 << 30, name="NVIDIA GB200"),
        "less": changed(used_bytes=(1 << 30) - 1),
        "less beside a CPU": changed(used_bytes=(1 << 30) - 1, name="NVIDIA GB200"),
        "Windows": combine(changed(used_bytes=1 << 34), lambda tree: tree.file("/dev/dxg", "")),
        "not reported": changed(used_bytes=None),
    },
    "gpu-mig": {
        "off after a reset": changed(mig=True, mig_pending=False),
        "on after a reset": changed(mig=False, mig_pending=True),
    },
    "gpu-p2p": {
        **{f"status {status}": peers(*[0] * 14, status) for status in range(1, 8)},
        "four pairs": peers(*[4] * 4, *[0] * 11),
        "five pairs": peers(*[4] * 5, *[0] * 10),
        "not all pairs": peers(*[0] * 14),
        "not all pairs, and one does not answer": combine(peers(*[0] * 14), changed(error=LOST)),
        "not all pairs, and one is withheld": combine(peers(*[0] * 14), changed(error=WITHHELD)),
        "two kinds of pairs": peers(2, 5, *[0] * 13),
        "one GPU": healthy(gpus=1),
        "two GPUs": healthy(gpus=2),
    },
    "gpu-same-model": {
        "memory": changed(memory_bytes=1 << 36),
        "two of each": combine(*(changed(index, vbios="96.00.74.00.01") for index in range(4))),
        "not known": changed(vbios=""),
        "one that does not answer": changed(error=LOST),
        "one that is withheld": changed(error=WITHHELD),
        "one that answers": combine(*(changed(index, error=LOST) for index in range(7))),
        "two that answer": combine(*(changed(index, error=LOST) for index in range(6))),
        "one GPU": healthy(gpus=1),
        "two GPUs": healthy(gpus=2),
    },
    "gpu-cuda-driver": {
        "CUDA 13": combine(
            nvml(cuda=13010),
            lambda tree: tree.call("nccl_packages", json.dumps([["nvidia-nccl-cu13", "2.30.7"]])),
        ),
        "CUDA 11.8": combine(
            nvml(cuda=11080), lambda tree: tree.call("nccl_packages", json.dumps(PACKAGE))
        ),
        "CUDA 12.0": combine(
            nvml(cuda=12000), lambda tree: tree.call("nccl_packages", json.dumps(PACKAGE))
        ),
        "not known": nvml(cuda=None),
        "no package": lambda tree: tree.call("nccl_packages", "[]"),
    },
    "gpu-compute-mode": {f"mode {mode}": changed(compute_mode=mode) for mode in range(5)},
    "gpu-nouveau": {
        "both": lambda tree: tree.file("/proc/modules", MODULES),
        "a module whose user has the name": lambda tree: tree.file(
            "/proc/modules", "nvidia 1 0 nouveau Live 0x0"
        ),
    },
    "gpu-missing": {
        "two switches": lambda tree: [
            tree.drop(f"{DEVICES}/0000:0{number}:00.0") for number in (7, 8)
        ],
        "nine switches": lambda tree: [
            tree.files(f"{DEVICES}/0000:1{number}:00.0", vendor="0x10de", **{"class": "0x068000"})
            for number in range(3)
        ],
        "no switch, more device files": lambda tree: (
            [tree.drop(f"{DEVICES}/0000:0{number}:00.0") for number in range(5, 9)],
            all_changed(links=[])(tree),
            [tree.file(f"/dev/nvidia{number}", "") for number in range(10)],
        ),
        "sixteen": (
            healthy(gpus=8).files(
                f"{DEVICES}/0000:20:00.0", vendor="0x10de", **{"class": "0x030200"}
            )
        ),
    },
    "gpu-load-throttle": {
        "hot at times": loading(first=3, reasons=0x40, temperature_c=92, power_w=700),
        "a brake": loading(reasons=0x80, sm_mhz=990),
        "temperature is not known": loading(reasons=0x40, temperature_c=None, power_w=None),
    },
}
