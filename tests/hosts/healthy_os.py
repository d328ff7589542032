"""Kernel, CPUs, memory, limits and environment of the healthy server."""

import json

from tree import Tree

from busbw.host.limited import GIVEN_UP

CPUS = 192
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             unlimited            unlimited            processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes"""
MODULES = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_peermem",
    "mlx5_ib",
    "mlx5_core",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "gdrdrv",
    "nf_tables",
)
MEMORY = """MemTotal:       2113390140 kB
MemFree:        2000000000 kB
MemAvailable:   2050000000 kB
HugePages_Total:    5128
HugePages_Free:     5128"""
GROUP = "/sys/fs/cgroup/system.slice/sshd.service"
ROOT = "24 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro"


def add(tree: Tree) -> None:
    """To the tree."""
    tree.files(
        "/proc/sys/kernel", hostname="gpu-1", osrelease="6.8.0-60-generic", numa_balancing="0"
    )
    tree.file("/proc/sys/kernel/yama/ptrace_scope", "1").file(
        "/proc/uptime", "100000.00 19000000.00"
    )
    tree.file("/proc/sys/kernel/random/boot_id", "5f0c2b1e-8d4a-4a57-9b53-0d3c6e1f7a20")
    tree.file("/proc/self/limits", LIMITS).file("/proc/self/status", "CapEff:\t000001ffffffffff")
    tree.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro iommu=pt")
    tree.file("/proc/modules", "\n".join(f"{name} 1 0 - Live 0x0" for name in MODULES))
    tree.files("/sys/class/dmi/id", sys_vendor="Supermicro", product_name="SYS-821GE-TNHR")
    tree.file("/proc/meminfo", MEMORY)
    tree.file("/proc/self/mountinfo", ROOT)
    tree.call("environment", json.dumps({})).call("euid", "0")
    _settings(tree)
    _control_group(tree)
    _cpus(tree)


def _settings(tree: Tree) -> None:
    tree.files("/proc/sys/vm", zone_reclaim_mode="0")
    tree.files(
        "/proc/sys/net/ipv4", tcp_congestion_control="cubic", ip_local_port_range="32768\t60999"
    )
    tree.files(
        "/proc/sys/net/ipv4", tcp_rmem="4096\t131072\t6291456", tcp_wmem="4096\t16384\t4194304"
    )
    tree.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    tree.file("/etc/systemd/logind.conf", "[Login]\nRemoveIPC=no").listing("/run/systemd", "system")
    tree.file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
    )
    tree.listing("/dev", "gdrdrv", "infiniband", "shm").listing(
        "/dev/infiniband", "rdma_cm", *(f"uverbs{index}" for index in range(8))
    )
    tree.call(
        "access /dev/infiniband",
        json.dumps({f"uverbs{index}": True for index in range(8)} | {"rdma_cm": True}),
    )
    tree.call("nft ruleset", json.dumps({"nftables": []}))
    tree.call("clock", json.dumps({"synchronized": True, "error_us": 120}))
    tree.call("stuck processes", "[]")
    tree.call(GIVEN_UP, "{}")
    space = {"total": 1 << 40, "free": 1 << 39, "files": 10**8, "free_files": 9 * 10**7}
    tree.call(
        "file systems",
        json.dumps(
            {
                path: {**space, "device": index}
                for index, path in enumerate(("/", "/tmp", "/var", "/dev/shm", "/root"))
            }
        ),
    )
    tree.call("space /dev/shm", json.dumps({"total": 1056695070720, "free": 1056695070720}))


def _control_group(tree: Tree) -> None:
    tree.file("/proc/self/cgroup", "0::/system.slice/sshd.service").call(
        "allowed cpus", json.dumps(list(range(CPUS)))
    )
    tree.files(
        GROUP,
        **{
            "memory.max": "max",
            "memory.current": "9000000",
            "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0",
        },
    )
    tree.files(
        GROUP, **{"cpu.max": "max 100000", "cpu.stat": "usage_usec 5\nnr_periods 0\nnr_throttled 0"}
    )
    tree.files(GROUP, **{"pids.max": "max", "pids.current": "30"})


def _cpus(tree: Tree) -> None:
    base = "/sys/devices/system"
    tree.files(f"{base}/cpu", online=f"0-{CPUS - 1}", present=f"0-{CPUS - 1}", isolated="").file(
        f"{base}/cpu/smt/control", "on"
    )
    tree.files(
        f"{base}/clocksource/clocksource0",
        current_clocksource="tsc",
        available_clocksource="tsc hpet acpi_pm",
    )
    for cpu in range(CPUS):
        tree.files(f"{base}/cpu/cpu{cpu}/cpufreq", scaling_governor="performance")
    tree.file(f"{base}/node/online", "0-1")
    for node, cpus in enumerate(("0-47,96-143", "48-95,144-191")):
        tree.file(f"{base}/node/node{node}/cpulist", cpus).file(
            f"{base}/node/node{node}/meminfo", f"Node {node} MemTotal: 1056695070 kB"
        )
    tree.files(f"{base}/edac/mc/mc0", ue_count="0", ce_count="0")
