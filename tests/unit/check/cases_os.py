"""Cases of the layers kernel, limits, CPU and memory."""

import json

from healthy import healthy
from healthy_os import GROUP, LIMITS, MEMORY, MODULES, ROOT
from healthy_pcie import DEVICES

from busbw.host.limited import GIVEN_UP

NODE, CPU = "/sys/devices/system/node", "/sys/devices/system/cpu"
CLOSED = {
    "chain": {
        "family": "inet",
        "table": "filter",
        "name": "input",
        "hook": "input",
        "policy": "drop",
    }
}


def efa():
    """The server with an EFA device."""
    tree = healthy().link("/sys/class/infiniband/rdmap0/device", "../../../0000:a0:00.0")
    tree.files(
        "/sys/class/infiniband/rdmap0/ports/1",
        link_layer="Unspecified",
        state="4: ACTIVE",
        rate="400 Gb/sec (4X NDR)",
    )
    return tree.files(
        f"{DEVICES}/0000:a0:00.0", vendor="0x1d0f", **{"class": "0x020000"}, numa_node="0"
    )


def container():
    """A container on the server."""
    return healthy().file("/.dockerenv", "")


def without(*modules):
    """The server with fewer modules."""
    lines = "\n".join(f"{name} 1 0 - Live 0x0" for name in MODULES if name not in modules)
    return lambda tree: tree.file("/proc/modules", lines)


def limit(name, value):
    """Another soft limit."""
    line = next(line for line in LIMITS.splitlines() if line.startswith(name))
    return lambda tree: tree.file(
        "/proc/self/limits", LIMITS.replace(line, f"{name:25} {value:20} unlimited")
    )


def proprietary(tree):
    """NVIDIA's proprietary driver and no module for peer memory."""
    without("nvidia_peermem")(tree)
    tree.file(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.158.01"
    )


def no_rdma_devices(tree):
    """Without ib_uverbs and its device files."""
    without("ib_uverbs")(tree)
    tree.drop("/dev/infiniband")


SILENT = '{"silent": ["/mnt/data: did not answer within 5 s"], "over": ""}'


def full(path, **values):
    """Another state of a file system."""
    return lambda tree: tree.update(
        "file systems", **{path: json.loads(tree.calls["file systems"]["text"])[path] | values}
    )


def mounted(*mounts):
    """Other mounts."""
    return lambda tree: tree.file("/proc/self/mountinfo", "\n".join(mounts))


KERNEL = {
    "reads-answer": lambda tree: tree.call(GIVEN_UP, SILENT),
    "gpudirect-path": proprietary,
    "gdrcopy": lambda tree: tree.listing("/dev", "infiniband"),
    "rdma-modules": no_rdma_devices,
    "rdma-access": lambda tree: tree.update("access /dev/infiniband", uverbs3=False),
    "kernel-removeipc": lambda tree: tree.file(
        "/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=yes"
    ),
    "kernel-numa-balancing": lambda tree: tree.file("/proc/sys/kernel/numa_balancing", "1"),
    "kernel-zone-reclaim": lambda tree: tree.file("/proc/sys/vm/zone_reclaim_mode", "1"),
    "kernel-thp": lambda tree: tree.file(
        "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"
    ),
    "kernel-tcp-memory": lambda tree: tree.file(
        "/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t262144"
    ),
    "kernel-tcp-congestion": lambda tree: tree.file(
        "/proc/sys/net/ipv4/tcp_congestion_control", "bbr"
    ),
    "kernel-port-range": lambda tree: tree.file(
        "/proc/sys/net/ipv4/ip_local_port_range", "50000\t50999"
    ),
    "kernel-time-sync": lambda tree: tree.update("clock", synchronized=False),
    "firewall": lambda tree: tree.call("nft ruleset", json.dumps({"nftables": [CLOSED]})),
    "yama-ptrace": lambda tree: tree.file("/proc/sys/kernel/yama/ptrace_scope", "2"),
    "stuck-processes": lambda tree: tree.call("stuck processes", '[[4242, "python3"]]'),
}
LIMIT = {
    "memlock": limit("Max locked memory", "8388608"),
    "open-files": limit("Max open files", "1024"),
    "stack": limit("Max stack size", "unlimited"),
    "process-count": limit("Max processes", "1024"),
    "shm-size": lambda tree: tree.call("space /dev/shm", '{"total": 67108864, "free": 67108864}'),
    "disk-space": full("/tmp", free=0),
    "read-only-disk": mounted(ROOT.replace(" rw,errors", " ro,errors")),
    "cgroup-memory": lambda tree: tree.file(f"{GROUP}/memory.events", "oom 2\noom_kill 2"),
    "allowed-cpus": lambda tree: tree.call("allowed cpus", "[0, 1, 2, 3]"),
    "cpu-quota": lambda tree: tree.files(
        GROUP, **{"cpu.max": "800000 100000", "cpu.stat": "nr_periods 90\nnr_throttled 7"}
    ),
    "cgroup-pids": lambda tree: tree.file(f"{GROUP}/pids.max", "1024"),
}
CPUS = {
    "cpu-governor": lambda tree: tree.file(f"{CPU}/cpu7/cpufreq/scaling_governor", "powersave"),
    "cpu-clocksource": lambda tree: tree.file(
        "/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"
    ),
    "cpu-irq-affinity": lambda tree: [
        tree.file(f"/proc/irq/{number}/effective_affinity_list", "60") for number in (100, 101, 102)
    ],
    "cpu-online": lambda tree: tree.file(f"{CPU}/online", "0-95"),
    "cpu-isolated": lambda tree: tree.file(f"{CPU}/isolated", "8-15"),
    "mem-numa-nodes": lambda tree: tree.file(f"{NODE}/node1/meminfo", "Node 1 MemTotal: 0 kB"),
    "mem-numa-policy": (
        container(),
        lambda tree: tree.file("/proc/self/status", "CapEff:\t00000000a80425fb"),
    ),
    "mem-hugepages": (efa(), lambda tree: tree.file("/proc/meminfo", MEMORY.replace("5128", "0"))),
    "mem-free": lambda tree: tree.file("/proc/meminfo", MEMORY.replace("2050000000", "9000000")),
    "mem-errors": lambda tree: tree.file("/sys/devices/system/edac/mc/mc0/ue_count", "1"),
}
OS = KERNEL | LIMIT | CPUS
