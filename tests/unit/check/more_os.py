"""Variants of the layers kernel and limits: what is named, and at which limit."""

import json

from cases_os import GROUP, SILENT, full, limit, mounted, no_rdma_devices, without
from healthy import healthy
from healthy_os import MEMORY, ROOT
from healthy_pcie import DEVICES
from tree import Change, Tree, combine

from busbw.host.limited import GIVEN_UP

MIB, GIB = 1 << 20, 1 << 30
OLD_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.158.01"


def release(text: str) -> Change:
    """Another kernel, without a module for peer memory."""
    return combine(
        without("nvidia_peermem"), lambda tree: tree.file("/proc/sys/kernel/osrelease", text)
    )


def down(*indices: int) -> Change:
    """Ports without a link."""
    return lambda tree: [
        tree.file(f"/sys/class/infiniband/mlx5_{index}/ports/1/state", "1: DOWN")
        for index in indices
    ]


def access(**files: bool) -> Change:
    """The device files of RDMA, and whether they may be used."""
    return lambda tree: tree.call("access /dev/infiniband", json.dumps(files))


def stuck(count: int) -> Change:
    """Processes that wait."""
    return lambda tree: tree.call(
        "stuck processes",
        json.dumps([[4242 + number, f"python{number}"] for number in range(count)]),
    )


def group(**values: str) -> Change:
    """Files of the cgroup of this process."""
    return lambda tree: tree.files(
        GROUP, **{name.replace("_", ".", 1): text for name, text in values.items()}
    )


def above(**values: str) -> Change:
    """Files of the cgroup above."""
    return lambda tree: tree.files(
        GROUP.rpartition("/")[0],
        **{name.replace("_", ".", 1): text for name, text in values.items()},
    )


def other_card() -> Tree:
    """A server with a network card of another maker, and memory of a BlueField."""
    tree = healthy(ports=0).files(
        f"{DEVICES}/0000:31:00.0", vendor="0x8086", **{"class": "0x020000"}
    )
    return tree.files(f"{DEVICES}/0000:32:00.0", vendor="0x15b3", **{"class": "0x058000"})


def of_amazon() -> Tree:
    """EFA alone, without the driver of NVIDIA's cards."""
    tree = healthy(ports=0).link("/sys/class/infiniband/rdmap0/device", "../../../0000:a0:00.0")
    tree.files(
        "/sys/class/infiniband/rdmap0/ports/1",
        link_layer="Unspecified",
        state="4: ACTIVE",
        rate="400 Gb/sec (4X NDR)",
    )
    tree.files(f"{DEVICES}/0000:a0:00.0", vendor="0x1d0f", **{"class": "0x020000"})
    without("mlx5_ib")(tree)
    return tree


def available(kilobytes: int) -> Change:
    """The memory that is left."""
    return lambda tree: tree.file("/proc/meminfo", MEMORY.replace("2050000000", str(kilobytes)))


def node(text: str) -> Change:
    """The memory of the second node."""
    return lambda tree: tree.file("/sys/devices/system/node/node1/meminfo", text)


def errors(**counts: str) -> Change:
    """Errors of the memory."""
    return lambda tree: tree.files("/sys/devices/system/edac/mc/mc0", **counts)


def shm(free: int, total: int = GIB) -> Change:
    """The room in /dev/shm."""
    return lambda tree: tree.call("space /dev/shm", json.dumps({"total": total, "free": free}))


def silent(*reasons: str, over: str = "") -> Change:
    """Reads without an answer."""
    return lambda tree: tree.call(GIVEN_UP, json.dumps({"silent": reasons, "over": over}))


MORE_KERNEL = {
    "reads-answer": {
        "not all was read": silent(over="60 s were over before all was read"),
        "both": silent(
            "/mnt/data: did not answer within 5 s",
            "NVML: did not answer within 5 s",
            over="60 s were over",
        ),
        "one": lambda tree: tree.call(GIVEN_UP, SILENT),
    },
    "gpudirect-path": {
        "no kernel version": release(""),
        "Linux 5.11": release("5.11.0-27-generic"),
        "Linux 5.12": release("5.12.0"),
        "Linux 6.1": release("6.1.0"),
        "an old driver on an old kernel": combine(
            release("4.18.0"), lambda tree: tree.file("/proc/driver/nvidia/version", OLD_DRIVER)
        ),
        "no driver": combine(
            release("6.8.0"), lambda tree: tree.drop("/proc/driver/nvidia/version")
        ),
        "EFA alone": of_amazon(),
    },
    "rdma-access": {
        "no file": access(rdma_cm=True),
        "no file, and one port is up": combine(access(rdma_cm=True), down(*range(7))),
        "no file, and no port is up": combine(access(rdma_cm=True), down(*range(8))),
        "two files": access(uverbs0=True, uverbs1=False, uverbs2=False, rdma_cm=False),
    },
    "rdma-modules": {
        "no connection manager": combine(
            without("rdma_cm", "rdma_ucm"), lambda tree: tree.listing("/dev/infiniband", "uverbs0")
        ),
        "built in": without("ib_uverbs", "rdma_cm", "rdma_ucm"),
        "no file either": no_rdma_devices,
        "no driver": without("mlx5_ib"),
        "other cards": other_card(),
        "EFA alone": of_amazon(),
        "not known": lambda tree: tree.drop("/proc/modules"),
    },
    "stuck-processes": {
        "five": stuck(5),
        "six": stuck(6),
        "seven in a container": combine(stuck(7), lambda tree: tree.file("/.dockerenv", "")),
    },
}

MORE_CPU = {
    "mem-hugepages": {
        "one page": lambda tree: tree.file(
            "/proc/meminfo", MEMORY.replace("HugePages_Free:     5128", "HugePages_Free:     1")
        ),
        "free pages are not known": lambda tree: tree.file(
            "/proc/meminfo", MEMORY.rpartition("\n")[0]
        ),
        "none is reserved": lambda tree: tree.file("/proc/meminfo", MEMORY.replace("5128", "0")),
    },
    "mem-free": {
        "exactly the share": available(211339014),
        "less than the share": available(211339013),
        "not known": lambda tree: tree.file("/proc/meminfo", "MemTotal:       2113390140 kB"),
        "the total is not known": lambda tree: tree.file(
            "/proc/meminfo", "MemAvailable:       2113390140 kB"
        ),
    },
    "mem-numa-nodes": {
        "half of the other": node("Node 1 MemTotal: 528347535 kB"),
        "less than half of the other": node("Node 1 MemTotal: 528347534 kB"),
        "one kB": node("Node 1 MemTotal: 1 kB"),
        "not known": node(""),
    },
    "mem-numa-policy": {
        "another right": lambda tree: tree.file("/proc/self/status", f"CapEff:\t{1 << 24:016x}"),
        "this right alone": lambda tree: tree.file("/proc/self/status", f"CapEff:\t{1 << 23:016x}"),
        "not known": lambda tree: tree.file("/proc/self/status", "Name: busbw"),
    },
    "mem-errors": {
        "a folder of another kind": lambda tree: tree.files(
            "/sys/devices/system/edac/mc/power", ue_count="5"
        ),
        "a folder of another kind with a number": lambda tree: tree.files(
            "/sys/devices/system/edac/mc/pc1", ue_count="5"
        ),
        "a folder of another name": lambda tree: tree.files(
            "/sys/devices/system/edac/mc/mcx", ue_count="5"
        ),
        "corrected": errors(ce_count="100"),
        "many corrected": errors(ce_count="100000"),
        "more in a minute": (errors(ce_count="100"), errors(ce_count="200")),
        "a few in a minute": (errors(ce_count="100"), errors(ce_count="101")),
        "not counted before": (
            lambda tree: tree.drop("/sys/devices/system/edac/mc/mc0/ce_count"),
            errors(ce_count="100"),
        ),
    },
    "cpu-irq-affinity": {
        "one node": lambda tree: tree.file("/sys/devices/system/node/online", "0"),
        "nodes are not known": lambda tree: tree.file("/sys/devices/system/node/online", ""),
    },
}

MORE_LIMITS = {
    "cgroup-memory": {
        "a limit": group(memory_max=str(64 * GIB), memory_current=str(GIB)),
        "enough for each GPU": group(memory_max=str(128 * GIB), memory_current=str(GIB)),
        "of a monitor": group(memory_max=str(GIB // 2), memory_current=str(MIB)),
        "two limits": combine(group(memory_max=str(64 * GIB)), above(memory_max=str(3 * MIB + 1),
            memory_current="1")),
        "nearly full": group(memory_max=str(100 * MIB), memory_current=str(90 * MIB + 1)),
        "not nearly full": group(memory_max=str(100 * MIB), memory_current=str(90 * MIB)),
        "not known how full": combine(group(memory_max=str(100 * MIB)),
            lambda tree: tree.drop(f"{GROUP}/memory.current")),
        "killed at a limit": combine(
            above(memory_max=str(3 * GIB), memory_current="1"),
            group(memory_max=str(64 * GIB), memory_events="oom 2\noom_kill 1"),
        ),
        "killed without a limit": group(memory_events="oom 2\noom_kill 2"),
        "no such cgroup": lambda tree: tree.file("/proc/self/cgroup", "0::/elsewhere"),
    },
    "cgroup-pids": {
        "exactly enough": group(pids_max="4126"),
        "one too few": group(pids_max="4125"),
        "not known how many": combine(group(pids_max="4096"),
            lambda tree: tree.drop(f"{GROUP}/pids.current")),
        "not known how many, one too few": combine(group(pids_max="4095"),
            lambda tree: tree.drop(f"{GROUP}/pids.current")),
        "too few above": combine(group(pids_max="50000"), above(pids_max="100", pids_current="7")),
        "no such cgroup": lambda tree: tree.file("/proc/self/cgroup", "0::/elsewhere"),
    },
    "read-only-disk": {
        "root that boot left read-only": mounted(ROOT.replace("rw", "ro")),
        "read-only on purpose": combine(
            mounted(ROOT.replace("rw", "ro")),
            lambda tree: tree.file("/etc/fstab", "# x\nUUID=7 / ext4 defaults,ro 0 1"),
        ),
        "writable in fstab": combine(
            mounted(ROOT, "27 24 259:9 / /raid ro - xfs /dev/md0 ro"),
            lambda tree: tree.file("/etc/fstab", "/dev/md0 /raid xfs defaults,noatime 0 0"),
        ),
        "verified image": combine(
            mounted("24 1 253:0 / / ro - ext4 /dev/dm-0 ro"),
            lambda tree: tree.file("/sys/dev/block/253:0/dm/uuid", "CRYPT-VERITY-7-vroot"),
        ),
        "images and bind mounts": mounted(
            ROOT,
            "26 24 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro",
            "27 24 259:2 /etc /data ro - ext4 /dev/nvme0n1p2 rw",
            "28 24 0:60 / /boot/x ro - ext4 /dev/sda3 ro",
        ),
        "one device twice": mounted(
            "27 24 259:9 / /raid rw - xfs /dev/md0 ro", "28 24 259:9 /a /raid/a rw - xfs /dev/md0 ro"
        ),
    },
    "disk-space": {
        "exactly the share": full("/var", total=100 * GIB, free=5 * GIB),
        "less than the share": full("/var", total=100 * GIB, free=5 * GIB - 1),
        "less than the number": full("/var", total=1000 * GIB, free=20 * GIB - 1),
        "exactly the number": full("/var", total=1000 * GIB, free=20 * GIB),
        "full": full("/var", total=100 * GIB, free=256 * MIB - 1),
        "nearly full": full("/var", total=100 * GIB, free=256 * MIB),
        "small": full("/var", total=10 * GIB, free=GIB // 10),
        "small and full": full("/var", total=10 * GIB, free=GIB // 10 - 1),
        "one percent of a small one": full("/var", total=100 * MIB, free=MIB),
        "few files": full("/var", files=10**7, free_files=99_999),
        "no file": full("/var", files=10**7, free_files=0),
        "few files and little room": combine(full("/var", free=GIB, files=10**7, free_files=1),
            full("/", free=2 * GIB)),
        "the fullest first, by room or by files": combine(
            full("/var", files=2 * 10**6, free_files=99_999), full("/", total=100 * GIB, free=GIB)
        ),
        "both are as full": combine(
            full("/var", total=100 * GIB, free=2 * GIB, files=2 * 10**6, free_files=80_000),
            full("/", total=100 * GIB, free=3 * GIB)
        ),
        "little room and few files": full("/var", free=1, files=10**7, free_files=99_999),
        "no inodes": full("/var", files=0, free_files=0),
        "not allowed": lambda tree: tree.update("file systems",
            **{"/root": {"error": "permission denied"}}),
    },
    "memlock": {
        "all of the RAM": limit("Max locked memory", str(2113390140 * 1024)),
        "less than the RAM": limit("Max locked memory", str(2113390140 * 1024 - 1)),
        "the RAM is not known": combine(limit("Max locked memory", "8388608"),
            lambda tree: tree.drop("/proc/meminfo")),
        "without root": combine(limit("Max locked memory", "8388608"),
            lambda tree: tree.file("/proc/self/status", "CapEff:\t0")),
        "exactly what NCCL needs": combine(limit("Max locked memory", str(GIB)),
            lambda tree: tree.file("/proc/self/status", "CapEff:\t0")),
        "nearly what NCCL needs": combine(limit("Max locked memory", str(GIB - 1)),
            lambda tree: tree.file("/proc/self/status", "CapEff:\t0")),
        "in a container": combine(limit("Max locked memory", "8388608"),
            lambda tree: tree.file("/.dockerenv", "")),
        "without RDMA": combine(
            limit("Max locked memory", "8388608"),
            lambda tree: [tree.drop(f"/sys/class/infiniband/mlx5_{index}") for index in range(8)]
        ),
    },
    "process-count": {
        "exactly enough": limit("Max processes", "4096"),
        "one too few": limit("Max processes", "4095"),
        "none in use": limit("Max processes", "unlimited"),
    },
    "shm-size": {
        "exactly enough": shm(GIB),
        "too little left": shm(GIB - 1),
        "nothing left": shm(64 * MIB),
        "little left": shm(64 * MIB + 1),
        "files of jobs": combine(shm(MIB), lambda tree: tree.file("/dev/shm/nccl-abc", "")),
        "small": shm(GIB - 1, GIB - 1),
        "small in a container": combine(shm(MIB, MIB), lambda tree: tree.file("/.dockerenv", "")),
    },
}  # fmt: skip
