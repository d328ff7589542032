"""Kernel, CPUs, memory, limits and environment of the healthy server."""

import json

from tree import Tree

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             unlimited            unlimited            processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes"""


def add(tree: Tree) -> None:
    """To the tree."""
    tree.files("/proc/sys/kernel", hostname="gpu-1", osrelease="6.8.0-60-generic")
    tree.file("/proc/sys/kernel/random/boot_id", "5f0c2b1e-8d4a-4a57-9b53-0d3c6e1f7a20")
    tree.file("/proc/self/limits", LIMITS)
    tree.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro iommu=pt")
    tree.file("/proc/modules", "nvidia 1 0 - Live 0x0\nnvidia_uvm 1 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\nmlx5_core 1 0 - Live 0x0")
    tree.files("/sys/class/dmi/id", sys_vendor="Supermicro", product_name="SYS-821GE-TNHR")
    tree.file("/sys/devices/system/cpu/online", "0-191")
    tree.file("/proc/meminfo", "MemTotal:       2113390140 kB\nMemFree:        2000000000 kB")
    tree.call("environment", json.dumps({})).call("euid", "0")
