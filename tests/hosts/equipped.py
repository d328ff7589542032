"""The healthy server with what an expectations file also knows: mounts, NVMe drives, sockets, its
operating system.

And its losses.
"""

import json
from dataclasses import dataclass

from healthy import healthy
from healthy_gpu import DRIVER, all_changed, changed, links
from healthy_pcie import drive, gpu_bdf, port_bdf
from tree import Change, Tree

MOUNTS = """22 1 0:21 / /proc rw,nosuid - proc proc rw
23 1 0:22 / /sys rw,nosuid - sysfs sysfs rw
24 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
25 24 0:30 / /run rw - tmpfs tmpfs rw
26 24 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro
27 24 259:9 / /raid rw,noatime shared:9 - xfs /dev/md0 rw
28 24 0:60 / /home rw,relatime - autofs systemd-1 rw
29 28 0:61 / /home/ann rw,relatime - nfs4 nas:/home/ann rw
30 24 0:62 / /data\\040sets ro,relatime - lustre 10.0.0.1@o2ib:/data ro
31 24 259:9 /var/lib/kubelet/pods/a /var/lib/kubelet/pods/a rw - xfs /dev/md0 rw
32 24 0:70 / /var/lib/docker/overlay2/a/merged rw - overlay overlay rw"""
SIZES = {"/": 1 << 40, "/raid": 28 << 40, "/data sets": 1 << 50}
NVME = "0000:e1:00.0"  # the third drive
NODES = ("0-47,96-143", "48-95,144-191")


def equipped(*, gpus: int = 8, ports: int = 8, layer: str = "InfiniBand") -> Tree:
    """The server."""
    tree = healthy(gpus=gpus, ports=ports, layer=layer)
    tree.file("/proc/self/mountinfo", MOUNTS).file(
        "/etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"'
    )
    for path, size in SIZES.items():
        tree.call(f"space {path}", json.dumps({"total": size, "free": size // 2}))
    drive(tree, 2, NVME)
    for node, cpus in enumerate(NODES):
        tree.file(f"/sys/devices/system/cpu/cpu{48 * node}/topology/core_siblings_list", cpus)
    return tree


@dataclass(frozen=True)
class Loss:
    """One thing that is less than it was, and who must be named: the check, the subject, the
    verdict.
    """

    change: Change
    check: str
    subject: str
    says: str
    verdict: str = "fail"


def _rates(text: str, *ports: int) -> Change:
    return lambda tree: [
        tree.file(f"/sys/class/infiniband/mlx5_{port}/ports/1/rate", text) for port in ports
    ]


def _without_gpus(*missing: int) -> Change:
    """As after a reboot in which PCI did not find them."""

    def change(tree: Tree) -> None:
        for name in ("nvml", "nvml_health"):
            gpus = json.loads(tree.calls[name]["text"])["gpus"]
            tree.update(
                name,
                gpus=[
                    gpu | {"index": at}
                    for at, gpu in enumerate(g for g in gpus if g["index"] not in missing)
                ],
            )
        for index in missing:
            tree.drop(f"/sys/bus/pci/devices/{gpu_bdf(index)}")

    return change


def _moved(tree: Tree) -> None:
    changed(1, bus_id="0000:44:00.0")(tree)
    tree.drop(f"/sys/bus/pci/devices/{gpu_bdf(1)}")
    tree.files("/sys/bus/pci/devices/0000:44:00.0", vendor="0x10de", **{"class": "0x030200"})
    tree.files(
        "/sys/bus/pci/devices/0000:44:00.0",
        max_link_speed="32.0 GT/s PCIe",
        current_link_width="16",
    )


def _silent(tree: Tree) -> None:
    """The third GPU, of which NVML knows only that it is there."""
    gpus = json.loads(tree.calls["nvml_health"]["text"])["gpus"]
    tree.update(
        "nvml_health",
        gpus=[{"index": 2, "error": "Unknown Error"} if gpu["index"] == 2 else gpu for gpu in gpus],
    )


def _not_listed(tree: Tree) -> None:
    for name in ("nvml", "nvml_health"):
        tree.update(name, gpus=json.loads(tree.calls[name]["text"])["gpus"][:-1])


def _without_ports(*missing: int) -> Change:
    def change(tree: Tree) -> None:
        for port in missing:
            for path in (
                f"/sys/class/infiniband/mlx5_{port}",
                f"/sys/class/net/ib{port}",
                f"/sys/class/net/eth{port}",
            ):
                tree.drop(path)

    return change


def _links(count: int, **values: object) -> list[dict[str, object]]:
    link = {
        "active": True,
        "remote": 2,
        "version": 7,
        "speed_mbps": 26562,
        "errors": {"recovery": 0},
    }
    return [{"number": number, **link, **values} for number in range(count)]


def _memory(kib: int) -> Change:
    return lambda tree: tree.file(
        "/proc/meminfo", f"MemTotal: {kib} kB\nHugePages_Total:    5128\nHugePages_Free:     5128"
    )


def _mounted(old: str, new: str) -> Change:
    return lambda tree: tree.file("/proc/self/mountinfo", MOUNTS.replace(old, new))


LAST = 7
LOSSES = {
    "GPUs off PCI": Loss(_without_gpus(1, 2), "BW290", gpu_bdf(1), "6 GPUs, expected 8"),
    "all GPUs off PCI": Loss(_without_gpus(*range(8)), "BW290", gpu_bdf(0), "0 GPUs, expected 8"),
    "GPU not in NVML": Loss(_not_listed, "BW290", gpu_bdf(LAST), "NVML lists 7"),
    "GPU that does not answer": Loss(_silent, "BW290", "GPU 2", "Unknown Error"),
    "model": Loss(
        changed(2, name="NVIDIA A100"), "BW290", "GPU 2", "model is NVIDIA A100, not NVIDIA H100"
    ),
    "all models": Loss(all_changed(name="NVIDIA H200"), "BW290", "GPU 0", "model is NVIDIA H200"),
    "GPU memory": Loss(changed(3, memory_bytes=40 << 30), "BW290", "GPU 3", "memory is 40.0 GiB"),
    "VBIOS": Loss(changed(4, vbios="1"), "BW290", "GPU 4", "VBIOS is 1"),
    "another GPU": Loss(
        changed(4, serial="1653723059999"), "BW290", "GPU 4", "number is 1653723059999, not 16537"
    ),
    "persistence": Loss(changed(5, persistence=False), "BW290", "GPU 5", "persistence mode is off"),
    "ECC": Loss(changed(6, ecc=False), "BW290", "GPU 6", "ECC is off, not on"),
    "MIG": Loss(changed(0, mig=True), "BW290", "GPU 0", "MIG is on, not off"),
    "GPU memory unread": Loss(
        changed(3, memory_bytes=None), "BW290", "GPU 3", "memory cannot be read", "unknown"
    ),
    "GPU elsewhere": Loss(_moved, "BW290", gpu_bdf(1), "no GPU at", "warn"),
    "firmware": Loss(
        lambda tree: [
            tree.file(f"/sys/class/infiniband/mlx5_{port}/fw_ver", "28.39.1002")
            for port in range(8)
        ],
        "BW293",
        "mlx5_0",
        "firmware is 28.39.1002, older than 28.41.1000",
    ),
    "driver": Loss(
        lambda tree: tree.update("nvml_health", driver="535.104.05"),
        "BW291",
        "",
        f"older than {DRIVER}",
    ),
    "kernel": Loss(
        lambda tree: tree.file("/proc/sys/kernel/osrelease", "6.8.0-59-generic"),
        "BW291",
        "",
        "kernel is 6.8.0-59",
    ),
    "system": Loss(
        lambda tree: tree.file("/etc/os-release", "ID=ubuntu\nVERSION_ID=20.04"),
        "BW291",
        "",
        "20.04, older than 22.04",
    ),
    "another system": Loss(
        lambda tree: tree.file("/etc/os-release", "ID=rocky\nVERSION_ID=23"),
        "BW291",
        "",
        "rocky, not ubuntu",
    ),
    "system unread": Loss(
        lambda tree: tree.drop("/etc/os-release"), "BW291", "", "cannot be read", "unknown"
    ),
    "NVLinks": Loss(changed(2, links=_links(17)), "BW292", "GPU 2", "is 17, not 18"),
    "all NVLinks": Loss(all_changed(links=[]), "BW292", "GPU 0", "is 0, not 18"),
    "NVLink rate": Loss(
        all_changed(links=_links(18, speed_mbps=13281)), "BW292", "GPU 0", "12.5 GB/s, not 25 GB/s"
    ),
    "a slow NVLink": Loss(
        changed(2, links=links(speed_mbps=13281)), "BW292", "GPU 2", "12.5 GB/s, not 25 GB/s"
    ),
    "NVSwitch": Loss(
        lambda tree: tree.drop("/sys/bus/pci/devices/0000:06:00.0"),
        "BW292",
        "",
        "3 NVSwitches, expected 4",
    ),
    "port": Loss(_without_ports(3), "BW293", "mlx5_3", "7 RDMA ports, expected 8"),
    "all ports": Loss(_without_ports(*range(8)), "BW293", "mlx5_0", "0 RDMA ports, expected 8"),
    "rate of a port": Loss(
        _rates("200 Gb/sec (4X HDR)", 5), "BW293", "mlx5_5", "rate is 200 Gbit/s, not 400 Gbit/s"
    ),
    "rate of all ports": Loss(
        _rates("200 Gb/sec (4X HDR)", *range(8)),
        "BW293",
        "mlx5_0",
        "rate is 200 Gbit/s, not 400 Gbit/s",
    ),
    "port state": Loss(
        lambda tree: tree.file("/sys/class/infiniband/mlx5_4/ports/1/state", "2: INIT"),
        "BW293",
        "mlx5_4",
        "state is INIT, not ACTIVE",
    ),
    "link layer": Loss(
        lambda tree: tree.file("/sys/class/infiniband/mlx5_4/ports/1/link_layer", "other"),
        "BW293",
        "mlx5_4",
        "link layer",
    ),
    "rate unread": Loss(
        lambda tree: tree.drop("/sys/class/infiniband/mlx5_1/ports/1/rate"),
        "BW293",
        "mlx5_1",
        "cannot be read",
        "unknown",
    ),
    "interface": Loss(
        lambda tree: tree.drop("/sys/class/net/eno1"), "BW294", "eno1", "0 interfaces, expected 1"
    ),
    "interface rate": Loss(
        lambda tree: tree.file("/sys/class/net/eno1/speed", "1000"),
        "BW294",
        "eno1",
        "rate is 1 Gbit/s",
    ),
    "interface down": Loss(
        lambda tree: tree.file("/sys/class/net/eno1/operstate", "down"),
        "BW294",
        "eno1",
        "state is down",
    ),
    "MTU": Loss(
        lambda tree: tree.file("/sys/class/net/eno1/mtu", "1280"),
        "BW294",
        "eno1",
        "MTU is 1280, not 1500",
    ),
    "CPUs": Loss(
        lambda tree: tree.file("/sys/devices/system/cpu/online", "0-95"),
        "BW295",
        "",
        "CPUs online is 96, not 192",
    ),
    "a socket": Loss(
        lambda tree: tree.file("/sys/devices/system/cpu/cpu0/topology/core_siblings_list", "0-191"),
        "BW295",
        "",
        "sockets is 1, not 2",
    ),
    "NUMA nodes": Loss(
        lambda tree: tree.file("/sys/devices/system/node/online", "0-7"),
        "BW295",
        "",
        "NUMA nodes is 8, not 2",
    ),
    "half the RAM": Loss(_memory(1056695070), "BW296", "", "RAM is 1007.7 GiB, not 2015.5 GiB"),
    "a memory module": Loss(_memory(2113390140 * 31 // 32), "BW296", "", "RAM is"),
    "RAM unread": Loss(
        lambda tree: tree.drop("/proc/meminfo"), "BW296", "", "RAM cannot be read", "unknown"
    ),
    "huge pages": Loss(
        lambda tree: tree.file("/proc/meminfo", "MemTotal: 2113390140 kB\nHugePages_Total: 8"),
        "BW296",
        "",
        "huge pages is 8, not 5128",
    ),
    "PCIe width": Loss(
        lambda tree: tree.file(f"/sys/bus/pci/devices/{gpu_bdf(3)}/current_link_width", "8"),
        "BW297",
        "GPU 3",
        "width is x8, not x16",
    ),
    "PCIe width of a port": Loss(
        lambda tree: tree.file(f"/sys/bus/pci/devices/{port_bdf(2)}/current_link_width", "4"),
        "BW297",
        "mlx5_2",
        "width is x4, not x16",
    ),
    "PCIe speed of all": Loss(
        lambda tree: [
            tree.file(path, "16.0 GT/s PCIe")
            for path in list(tree.paths)
            if path.endswith(("current_link_speed", "max_link_speed"))
        ],
        "BW297",
        "GPU 0",
        "speed is 16 GT/s, not 32 GT/s",
    ),
    "mount": Loss(
        _mounted("27 24 259:9 / /raid", "27 24 259:9 / /elsewhere"),
        "BW298",
        "/raid",
        "/raid is not mounted",
    ),
    "mount type": Loss(
        _mounted("- xfs /dev/md0 rw\n28", "- ext4 /dev/md0 rw\n28"),
        "BW298",
        "/raid",
        "type is ext4, not xfs",
    ),
    "read only": Loss(
        _mounted("- xfs /dev/md0 rw\n28", "- xfs /dev/md0 ro\n28"),
        "BW298",
        "/raid",
        "access is read only",
    ),
    "size": Loss(
        lambda tree: tree.call("space /raid", '{"total": 7, "free": 1}'),
        "BW298",
        "/raid",
        "size is",
    ),
    "dead mount": Loss(
        lambda tree: tree.failing("space /data sets", "did not answer"),
        "BW298",
        "/data sets",
        "did not answer",
        "unknown",
    ),
    "NVMe drive": Loss(
        lambda tree: tree.drop(f"/sys/bus/pci/devices/{NVME}"),
        "BW298",
        "NVMe",
        "2 NVMe drives, expected 3",
    ),
    "dead NVMe drive": Loss(
        lambda tree: tree.file("/sys/class/nvme/nvme2/state", "dead"),
        "BW298",
        "nvme2",
        "nvme2 is dead",
    ),
}
