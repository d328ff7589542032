"""What should be the same on all nodes of a cluster: versions, settings and hardware, as short texts by name."""

import re
from collections.abc import Callable, Iterator, Mapping

from busbw.check.machine import Machine, Port
from busbw.host import ethtool
from busbw.host.nic import RDMA

NONE = "none"
Read = Callable[[Machine], Iterator[tuple[str, str]]]
_LIMITS = {"Max locked memory": "limit of locked memory", "Max open files": "limit of open files", "Max stack size": "limit of the stack"}
_FILES = {
    "kernel": "/proc/sys/kernel/osrelease",
    "kernel command line": "/proc/cmdline",
    "CPUs": "/sys/devices/system/cpu/online",
    "clock source": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "CPU governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "NUMA balancing": "/proc/sys/kernel/numa_balancing",
    "TCP congestion control": "/proc/sys/net/ipv4/tcp_congestion_control",
    "port range": "/proc/sys/net/ipv4/ip_local_port_range",
    "transparent huge pages": "/sys/kernel/mm/transparent_hugepage/enabled",
    "mlx5 driver": "/sys/module/mlx5_core/version",
    "BIOS": "/sys/class/dmi/id/bios_version",
}
_OF_ONE_BOOT = re.compile(r"(BOOT_IMAGE|root|resume|initrd|UUID)=\S+ ?")


def facts(machine: Machine) -> dict[str, str]:
    """All facts that can be read, by name."""
    return {name: value for read in READERS for name, value in read(machine) if value}


def _files(machine: Machine) -> Iterator[tuple[str, str]]:
    for name, path in _FILES.items():
        text = machine.text(path) or ""
        yield name, _OF_ONE_BOOT.sub("", text).strip() if path == "/proc/cmdline" else text
    release = machine.text("/etc/os-release") or ""
    yield (
        "operating system",
        next((line.partition("=")[2].strip('"') for line in release.splitlines() if line.startswith("PRETTY_NAME")), ""),
    )
    yield "hypervisor", machine.hypervisor
    yield "nvidia_peermem", "loaded" if "nvidia_peermem" in machine.modules else "not loaded" if machine.modules else ""
    for line in (machine.text("/proc/self/limits") or "").splitlines():
        for title, name in _LIMITS.items():
            if line.startswith(title):
                yield name, line[len(title) :].split()[0]


def _gpus(machine: Machine) -> Iterator[tuple[str, str]]:
    host = machine.host
    yield "NVIDIA driver", host.driver
    yield "GPUs", str(len(host.gpus)) if host.gpus or not host.gpu_reason else ""
    yield "memory, GiB", str(round(host.memory_bytes / 2**30)) if host.memory_bytes else ""
    yield "model of the GPUs", merged({f"GPU {gpu.index}": gpu.name for gpu in host.gpus})
    yield "NVLinks of the GPUs", merged({f"GPU {gpu.index}": "" if gpu.nvlink is None else str(gpu.nvlink) for gpu in host.gpus})
    yield "PCI addresses of the GPUs", ", ".join(gpu.bus_id for gpu in host.gpus)


_OF_PORTS: dict[str, Callable[[Machine, Port], str | None]] = {
    "firmware": lambda machine, port: machine.text(f"{RDMA}/{port.device}/fw_ver"),
    "board": lambda machine, port: machine.text(f"{RDMA}/{port.device}/board_id"),
    "rate": lambda machine, port: machine.text(f"{port.path}/rate"),
    "state": lambda machine, port: machine.text(f"{port.path}/state"),
    "link layer": lambda machine, port: port.layer,
    "GID indices for RoCE v2": lambda machine, port: _gids(machine, port.path) if port.roce else "",
    "traffic class": lambda machine, port: machine.text(f"{RDMA}/{port.device}/tc/{port.number}/traffic_class"),
    "MTU": lambda machine, port: machine.text(f"/sys/class/net/{port.netdev}/mtu") if port.netdev else "",
    "DSCP trust": lambda machine, port: machine.text(f"/sys/class/net/{port.netdev}/qos/trust") if port.netdev else "",
    "driver": lambda machine, port: _driver(machine, port.netdev) if port.netdev else "",
}


def _ports(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "RDMA ports", ", ".join(port.name for port in machine.ports)
    yield "PCI addresses of RDMA ports", ", ".join(port.bdf for port in machine.ports)
    yield "interfaces of RDMA ports", ", ".join(port.netdev for port in machine.ports if port.netdev)
    for name, read in _OF_PORTS.items():
        yield f"{name} of RDMA ports", merged({port.name: read(machine, port) or "" for port in machine.ports})


def merged(values: Mapping[str, str]) -> str:
    """One text for the values of several parts: the value if all have the same, else `9000 (7), 1500 (mlx5_3)`."""
    parts: dict[str, list[str]] = {}
    for part, value in values.items():
        parts.setdefault(value, []).append(part)
    if len(parts) < 2:
        return next(iter(parts), "")
    first, *others = sorted(parts.items(), key=lambda item: -len(item[1]))
    texts = [f"{first[0] or NONE} ({len(first[1])})", *(f"{value or NONE} ({', '.join(those)})" for value, those in others)]
    return ", ".join(texts)


def _driver(machine: Machine, netdev: str) -> str:
    driver = ethtool.driver(machine, netdev)
    return f"{driver.name} {driver.version}" if isinstance(driver, ethtool.Driver) else ""


def _gids(machine: Machine, path: str) -> str:
    """Indices of the RoCE v2 GIDs that are not of a link-local address."""
    found = []
    for index in machine.names(f"{path}/gid_attrs/types"):
        version, gid = machine.text(f"{path}/gid_attrs/types/{index}"), machine.text(f"{path}/gids/{index}") or ""
        if version == "RoCE v2" and gid.strip("0:") and not gid.startswith("fe80"):
            found.append(index)
    return ", ".join(sorted(found, key=int))


def _environment(machine: Machine) -> Iterator[tuple[str, str]]:
    for name, value in (machine.environment or {}).items():
        if not name.startswith(("SLURM_", "PMIX_", "OMPI_COMM_")):
            yield f"${name}", value


READERS: tuple[Read, ...] = (_files, _gpus, _ports, _environment)
