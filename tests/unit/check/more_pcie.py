"""Variants of the layer PCIe: what is named, in which order, and at which limit."""

import json

from healthy import healthy
from healthy_gpu import all_changed
from healthy_pcie import CORRECTABLE, DEVICES, NVME, bridges, config, gpu_bdf, port_bdf
from loads import loading
from tree import Change, Tree, combine

GPU, GPU_4, PORT, PORT_5 = (
    f"{DEVICES}/{bdf}" for bdf in (gpu_bdf(2), gpu_bdf(4), port_bdf(3), port_bdf(5))
)
ROOT, UP, DOWN = bridges(2, gpu=True)
BRIDGES = [
    f"{DEVICES}/{bdf}"
    for index in range(8)
    for gpu in (True, False)
    for bdf in bridges(index, gpu=gpu)
]


def change_each(paths, change) -> Change:
    """A change for each of several paths."""
    return lambda tree: [change(tree, path) for path in paths]


def counts(kind: str, *pairs: tuple[str, str]) -> Change:
    """Error counts of devices."""
    return lambda tree: [tree.file(f"{path}/aer_dev_{kind}", text) for path, text in pairs]


def correctable(bad_tlp: int) -> str:
    return CORRECTABLE.replace("BadTLP 0", f"BadTLP {bad_tlp}").replace(
        "ERR_COR 0", f"ERR_COR {bad_tlp}"
    )


def user(change: Change) -> Change:
    """Read without root."""
    return lambda tree: (change(tree), tree.call("euid", "1000"))


def short(*paths: str) -> Change:
    """Configuration spaces as another user than root reads them."""
    return user(change_each(paths, lambda tree, path: tree.data(f"{path}/config", config()[:64])))


def under(*values: dict[str, object]) -> Change:
    """Values of the copies of each GPU under load: both directions, samples included."""

    def change(tree: Tree) -> None:
        gpus = json.loads(tree.calls["gpu_load"]["text"])["gpus"]
        for gpu, value in zip(gpus, values, strict=True):
            gpu |= {key: value.pop(key) for key in list(value) if key in gpu}
            rates = value.pop("rates", None)
            for number, copies in enumerate(gpu["copies"]):
                copies["bytes_per_s"] = rates[number] if rates else copies["bytes_per_s"]
                copies["samples"] = [sample | value for sample in copies["samples"]]
        tree.update("gpu_load", gpus=gpus)

    return change


def unsampled(tree: Tree) -> None:
    """Copies without any sample."""
    gpus = json.loads(tree.calls["gpu_load"]["text"])["gpus"]
    for gpu in gpus:
        gpu["copies"] = [copy | {"samples": []} for copy in gpu["copies"]]
    tree.update("gpu_load", gpus=gpus)


def without_drives(tree: Tree) -> None:
    for index, bdf in enumerate(NVME):
        tree.drop(f"/sys/class/nvme/nvme{index}").drop(f"{DEVICES}/{bdf}")


def loops(*rates: float | None) -> Change:
    """Rates of GPUDirect RDMA."""
    loops = [
        {"port": f"mlx5_{index}", "gpu": index, "bytes_per_s": rate, "error": "no memory region"}
        for index, rate in enumerate(rates)
    ]
    return lambda tree: tree.update("gpudirect_loopback", loops=loops)


MORE_PCIE = {
    "pcie-width": {
        "the narrowest first": (
            lambda tree: tree.file(f"{GPU}/current_link_width", "8").file(
                f"{GPU_4}/current_link_width", "4"
            )
        ),
        "a slot of 8 lanes": (
            lambda tree: tree.file(f"{GPU}/current_link_width", "8").file(
                f"{DEVICES}/{DOWN}/max_link_width", "8"
            )
        ),
        "a switch without a maximum": lambda tree: tree.drop(f"{DEVICES}/{UP}/max_link_width"),
        "hidden by a hypervisor": lambda tree: (
            tree.files("/sys/class/dmi/id", sys_vendor="QEMU"),
            tree.file(f"{GPU}/current_link_width", "0"),
        ),
    },
    "pcie-speed": {
        "the slowest first": lambda tree: (
            tree.file(f"{PORT}/current_link_speed", "16.0 GT/s PCIe"),
            tree.file(f"{PORT_5}/current_link_speed", "8.0 GT/s PCIe"),
        ),
        "a switch without a maximum": lambda tree: tree.drop(f"{DEVICES}/{UP}/max_link_speed"),
        "an idle GPU": lambda tree: tree.file(f"{GPU}/current_link_speed", "2.5 GT/s PCIe"),
        "GPUs with their CPU": all_changed(name="NVIDIA GB200"),
    },
    "pcie-nic-bandwidth": (
        {
            f"generation {number}": lambda tree, speed=speed: tree.file(
                f"{PORT}/current_link_speed", f"{speed} GT/s PCIe"
            )
            for number, speed in enumerate(("2.5", "5.0", "8.0", "16.0", "32.0", "64.0"), 1)
        }
        | {
            "one rate and its link are equal": lambda tree: tree.file(
                "/sys/class/infiniband/mlx5_3/ports/1/rate", "504.1 Gb/sec (4X NDR)"
            ),
            "a card without link": lambda tree: tree.file(
                "/sys/class/infiniband/mlx5_3/ports/1/state", "1: DOWN"
            ),
        }
    ),
    "pcie-path": {
        "on the root complex": lambda tree: tree.link(
            GPU, f"../../../devices/pci0000:70/{gpu_bdf(2)}"
        ),
        "in common only a root port": lambda tree: tree.link(
            GPU, f"../../../devices/pci0000:4d/{ROOT}/{gpu_bdf(2)}"
        ),
        "GPUs with their CPU": all_changed(name="NVIDIA GB200"),
    },
    "pcie-numa": {
        "a GPU and its card on two nodes": lambda tree: tree.file(
            f"{DEVICES}/{port_bdf(1)}/numa_node", "1"
        ),
        "a GPU without a node": lambda tree: tree.file(f"{GPU}/numa_node", "-1"),
        "a GPU and its card without a node": change_each(
            (GPU, f"{DEVICES}/{port_bdf(2)}"),
            lambda tree, path: tree.file(f"{path}/numa_node", "-1"),
        ),
        "one that cannot be read": lambda tree: tree.error(
            f"{GPU}/numa_node", "input/output error"
        ),
        "one node": lambda tree: tree.file("/sys/devices/system/node/online", "0"),
    },
    "pcie-acs": {
        "two ports": change_each(
            (f"{DEVICES}/{UP}", f"{DEVICES}/{DOWN}"),
            lambda tree, path: tree.data(f"{path}/config", config(acs=0x04)),
        ),
        "all bits": lambda tree: tree.data(f"{DEVICES}/{DOWN}/config", config(acs=0x7F)),
        "another user": short(*BRIDGES),
        "one that another user cannot read": short(f"{DEVICES}/{UP}"),
    },
    "pcie-iommu": {
        "two groups": lambda tree: (
            tree.file("/sys/kernel/iommu_groups/8/type", "DMA"),
            tree.link(f"{GPU}/iommu_group", "../../../../kernel/iommu_groups/8"),
        ),
        "no group": change_each(
            [f"{DEVICES}/{bdf}" for index in range(8) for bdf in (gpu_bdf(index), port_bdf(index))],
            lambda tree, path: tree.drop(f"{path}/iommu_group"),
        ),
        "types that cannot be read": lambda tree: (
            tree.link(
                f"{DEVICES}/{gpu_bdf(0)}/iommu_group", "../../../../kernel/iommu_groups/8"
            ).file("/proc/cmdline", "ro"),
            [
                tree.error(f"/sys/kernel/iommu_groups/{number}/type", "permission denied")
                for number in (7, 8)
            ],
        ),
    },
    "pcie-ats": {
        "enabled": lambda tree: tree.data(f"{PORT}/config", config(ats=True)),
        "another user": short(PORT),
        "no GPU": healthy(gpus=0).files("/sys/class/dmi/id", sys_vendor="QEMU"),
        "no port": healthy(ports=0).files("/sys/class/dmi/id", sys_vendor="QEMU"),
    },
    "pcie-max-read-request": {
        "512 bytes": lambda tree: tree.data(
            f"{PORT}/config", config(read_request=512, payload=512)
        ),
        "another user": short(PORT),
        "not PCI Express": lambda tree: tree.data(f"{PORT}/config", bytes(256)),
    },
    "pcie-max-payload": {
        "a GPU": lambda tree: tree.data(f"{GPU}/config", config(payload=512)),
        "128 bytes all the way": change_each(
            [f"{DEVICES}/{bdf}" for bdf in (ROOT, UP, DOWN, gpu_bdf(2))],
            lambda tree, path: tree.data(f"{path}/config", config(payload=128)),
        ),
        "one bridge of another user": short(f"{DEVICES}/{UP}"),
        "two bridges of another user": short(f"{DEVICES}/{UP}", f"{DEVICES}/{DOWN}"),
        "two bridges, one of which fails": lambda tree: (
            short(f"{DEVICES}/{DOWN}")(tree),
            tree.error(f"{DEVICES}/{UP}/config", "input/output error"),
        ),
        "not PCI Express": lambda tree: tree.data(f"{PORT}/config", bytes(256)),
    },
    "pcie-relaxed-ordering": {
        "an Intel host": lambda tree: tree.data(f"{PORT}/config", config(relaxed=False)),
        "another user": short(PORT),
    },
    "pcie-load-rate": {
        "the slowest first": under({"rates": (20e9, 41.9e9)}, {"rates": (10e9, 42.1e9)}),
        "no generation": under({"gen": None}, {"width": None}),
        "no samples": unsampled,
    },
    "pcie-load-link": {
        "fewer lanes": under({"width": 8}, {"gen": 4}),
        "down to": combine(under({}, {"gen": 4}), loading(first=3, gen=1)),
        "generation or lanes are not known": under({"gen": None}, {"width": None}),
        "nothing is known of the GPU": under({"gen_max": None}, {"width_max": None}),
    },
    "pcie-load-transitions": {
        "generation or lanes are not known": under({"gen": None}, {"width": None})
    },
    "gpudirect-loopback": {
        "the slowest first": loops(300e9 / 8, 100e9 / 8),
        "at the limit": loops(320e9 / 8, 319.9e9 / 8),
        "one fails": loops(None, 390e9 / 8),
        "a slow link": lambda tree: tree.file(f"{DEVICES}/{port_bdf(1)}/current_link_width", "8"),
        "a port without a rate": lambda tree: tree.file(
            "/sys/class/infiniband/mlx5_1/ports/1/rate", ""
        ),
        "a port that is gone": lambda tree: (
            tree.drop("/sys/class/infiniband/mlx5_1"),
            loops(390e9 / 8, None)(tree),
        ),
    },
    "nvme": {
        "resetting": lambda tree: tree.file("/sys/class/nvme/nvme1/state", "resetting"),
        "not readable": lambda tree: tree.error(
            "/sys/class/nvme/nvme1/state", "input/output error"
        ),
        "hot": lambda tree: tree.files(
            "/sys/class/nvme/nvme1/hwmon1", temp1_alarm="1", temp1_input="84850"
        ),
        "hot, but not how much": lambda tree: tree.files(
            "/sys/class/nvme/nvme1/hwmon1", temp1_alarm="1", temp1_input=""
        ),
        "no controller": (
            lambda tree: tree.drop("/sys/class/nvme/nvme0").drop(f"{DEVICES}/{NVME[0]}/driver")
        ),
        "no controller, with a driver": lambda tree: tree.drop("/sys/class/nvme/nvme0"),
        "off the bus": (
            lambda tree: tree.drop("/sys/class/nvme/nvme0").data(
                f"{DEVICES}/{NVME[0]}/config", b"\xff" * 64
            )
        ),
        "no drive at all": without_drives,
        "a character device and no model": lambda tree: tree.file(
            "/sys/class/nvme/nvme-fabrics/state", ""
        ).drop("/sys/class/nvme/nvme1/model"),
    },
    "pcie-aer-fatal": {
        "most errors first": counts(
            "fatal", (GPU, "DLP 1\nSDES 2\nTOTAL_ERR_FATAL 3"), (GPU_4, "DLP 9\nTOTAL_ERR_FATAL 9")
        ),
        "not fatal": counts(
            "nonfatal",
            (GPU, "Timeout 1\nTOTAL_ERR_NONFATAL 1"),
            (f"{DEVICES}/{DOWN}", "DLP 2\nTOTAL_ERR_NONFATAL 2"),
        ),
    },
    "pcie-aer-correctable": {
        "most errors first": counts(
            "correctable", (GPU, correctable(2000)), (GPU_4, correctable(9000))
        ),
        "at the limit": counts("correctable", (GPU, correctable(1843)), (GPU_4, correctable(1844))),
        "exactly at the limit": lambda tree: (
            counts("correctable", (GPU, correctable(900)), (GPU_4, correctable(901)))(tree),
            [tree.files(path, current_link_speed="15.625 GT/s PCIe") for path in (GPU, GPU_4)],
        ),
        "a link that is not known": lambda tree: (
            counts("correctable", (GPU, correctable(1)))(tree),
            tree.file(f"{GPU}/current_link_speed", "Unknown"),
        ),
        "more in a minute": (
            counts("correctable", (GPU, correctable(100)), (GPU_4, correctable(5000))),
            counts(
                "correctable",
                (GPU, correctable(9100)),
                (GPU_4, correctable(5001)),
                (f"{DEVICES}/{DOWN}", correctable(4000)),
            ),
        ),
        "none more in a minute": (
            counts("correctable", (GPU, correctable(5000))),
            counts("correctable", (GPU, correctable(5000))),
        ),
        "not counted before": (
            lambda tree: tree.drop(f"{GPU}/aer_dev_correctable"),
            counts("correctable", (GPU, correctable(5000))),
        ),
    },
    "device-files": {
        "two devices": lambda tree: (
            tree.error(f"{GPU}/numa_node", "input/output error").error(
                f"{GPU}/max_link_width", "input/output error"
            ),
            tree.error("/sys/class/infiniband/mlx5_3/fw_ver", "input/output error"),
            tree.error("/sys/class/infiniband/mlx5_3/ports/1/rate", "input/output error"),
        ),
        "a bridge": lambda tree: tree.error(f"{DEVICES}/{DOWN}/numa_node", "input/output error"),
    },
}
