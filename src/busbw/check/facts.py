"""Facts of a machine: what should be the same on all nodes of a cluster, as short texts by name."""

import re
from collections.abc import Callable, Iterator

from busbw.check.launcher.programs import open_mpi
from busbw.check.machine import Machine, RdmaPort, understood
from busbw.check.nccl.settings import libraries
from busbw.check.nccl.settings import settings as variables
from busbw.check.nic.links import own_ports
from busbw.check.roce.settings import settings, values
from busbw.host import ethtool
from busbw.host.bonding import read_bonds
from busbw.host.interfaces import Interface
from busbw.host.link_state import VIRTUAL
from busbw.host.nic import RDMA
from busbw.host.roce_qos import read_setters

NONE, INFINIBAND = "none", "InfiniBand"
Values = str | dict[str, str]  # of the node, or of each of its parts
Read = Callable[[Machine], Iterator[tuple[str, Values]]]
_LIMITS = {
    "Max locked memory": "locked memory limit",
    "Max open files": "open file limit",
    "Max stack size": "stack size limit",
}
FILES = {
    "kernel": "/proc/sys/kernel/osrelease",
    "CPUs": "/sys/devices/system/cpu/online",
    "clock source": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "CPU governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "NUMA balancing": "/proc/sys/kernel/numa_balancing",
    "TCP congestion control": "/proc/sys/net/ipv4/tcp_congestion_control",
    "port range": "/proc/sys/net/ipv4/ip_local_port_range",
    "TCP receive buffers": "/proc/sys/net/ipv4/tcp_rmem",
    "TCP send buffers": "/proc/sys/net/ipv4/tcp_wmem",
    "zone reclaim": "/proc/sys/vm/zone_reclaim_mode",
    "transparent huge pages": "/sys/kernel/mm/transparent_hugepage/enabled",
    "mlx5 driver": "/sys/module/mlx5_core/version",
    "BIOS": "/sys/class/dmi/id/bios_version",
}
# What differs between hosts by nature: kernel options for disks, addresses and names, and the
# variables of one rank.
_OF_ONE_HOST = re.compile(
    r"BOOT_IMAGE|root|rootflags|resume\w*|initrd|UUID|boot\w*|BOOTIF|ip|ifname|nameserver|netroot"
    r"|nfsroot|hostname|ostree|rd\..*|inst\..*|ds"
    r"|systemd\.(machine_id|hostname)|cloud\S*|\S*(uuid|mac)",
    re.IGNORECASE,
)
_OF_ONE_RANK = re.compile(
    r"SLURM_.*|PMIX_(?!MCA_).*|OMPI_COMM_.*|(OMPI|PRTE)_MCA_(plm_.*|mpi_yield_.*|.*tmpdir.*)"
    r"|NCCL_HOSTID|NCCL_COMM_ID|\w*_(RANK|NODEID|PROCID|LOCALID)"
)


# What a port that is down does not have.
OF_LINK = ("rate of RDMA ports", "GID indices for RoCE v2 of RDMA ports")


def facts(machine: Machine) -> dict[str, str]:
    texts = {name: merged(value) for name, value in facts_by_part(machine).items()}
    return {name: value for name, value in texts.items() if value}


def facts_by_part(machine: Machine) -> dict[str, Values]:
    return {name: value for read in READERS for name, value in understood(read, machine)}


def _files(machine: Machine) -> Iterator[tuple[str, str]]:
    for name, path in FILES.items():
        yield name, " ".join((machine.text(path) or "").split())
    release = machine.text("/etc/os-release") or ""
    names = [line for line in release.splitlines() if line.startswith("PRETTY_NAME")]
    yield "operating system", names[0].partition("=")[2].strip('"') if names else ""
    yield "hypervisor", machine.hypervisor
    if machine.modules:
        loaded = "nvidia_peermem" in machine.modules
        yield "nvidia_peermem", "loaded" if loaded else "not loaded"
    for line in (machine.text("/proc/self/limits") or "").splitlines():
        for title, name in _LIMITS.items():
            if line.startswith(title):
                yield name, line[len(title) :].split()[0]


def _gpus(machine: Machine) -> Iterator[tuple[str, Values]]:
    host = machine.host
    yield "NVIDIA driver", host.driver
    module = machine.text("/proc/driver/nvidia/version") or ""
    yield "NVIDIA kernel module", module.partition("\n")[0]
    yield "GPUs", str(len(host.gpus)) if host.gpus or not host.gpu_reason else ""
    yield "memory, GiB", str(round(host.memory_bytes / 2**30)) if host.memory_bytes else ""
    yield "GPU model", {f"GPU {gpu.index}": gpu.name for gpu in host.gpus}
    nvlinks = {
        f"GPU {gpu.index}": "" if gpu.nvlink is None else str(gpu.nvlink) for gpu in host.gpus
    }
    yield "NVLinks per GPU", nvlinks
    yield "PCI addresses of the GPUs in NVML", ", ".join(gpu.bus_id for gpu in host.gpus)


def _kernel_options(machine: Machine) -> Iterator[tuple[str, str]]:
    """One fact for each word of the command line, so that a difference stands out."""
    values: dict[str, list[str]] = {}
    for word in machine.cmdline:
        name, equals, value = word.partition("=")
        if not _OF_ONE_HOST.fullmatch(name):
            values.setdefault(name, []).append(value if equals else "set")
    for name, options in values.items():
        yield f"kernel option {name}", ", ".join(options)


def _libraries(machine: Machine) -> Iterator[tuple[str, str]]:
    installed = [
        f"{library.version or 'unknown'} ({library.by})" for library in libraries(machine) or ()
    ]
    yield "NCCL", ", ".join(installed)
    mpirun = open_mpi(machine)
    yield "mpirun", (mpirun.version or mpirun.error) if mpirun else ""


_OF_PORTS: dict[str, Callable[[Machine, RdmaPort], str | None]] = {
    "firmware": lambda machine, port: machine.text(f"{RDMA}/{port.device}/fw_ver"),
    "board": lambda machine, port: machine.text(f"{RDMA}/{port.device}/board_id"),
    "rate": lambda machine, port: machine.text(f"{port.path}/rate"),
    "state": lambda machine, port: machine.text(f"{port.path}/state"),
    "link layer": lambda machine, port: port.layer,
    "GID indices for RoCE v2": lambda machine, port: (
        _roce_v2_gids(machine, port.path) if port.roce else ""
    ),
    "partition keys": lambda machine, port: _partition_keys(machine, port),
    "MTU": lambda machine, port: (
        machine.text(f"/sys/class/net/{port.netdev}/mtu") if port.netdev else ""
    ),
    "driver": lambda machine, port: _driver(machine, port.netdev) if port.netdev else "",
}


def _ports(machine: Machine) -> Iterator[tuple[str, Values]]:
    ports = own_ports(machine)
    yield "RDMA ports", ", ".join(port.name for port in ports)
    yield "PCI addresses of RDMA ports", ", ".join(port.bdf for port in ports)
    yield "interfaces of RDMA ports", ", ".join(port.netdev for port in ports if port.netdev)
    for name, read in _OF_PORTS.items():
        values = {port.name: read(machine, port) or "" for port in ports}
        yield f"{name} of RDMA ports", values


def _roce(machine: Machine) -> Iterator[tuple[str, Values]]:
    table = {setting.subject: values(machine, setting) for setting in settings(machine)}
    names = dict.fromkeys(name for port_values in table.values() for name in port_values)
    for name in names:
        by_subject = {subject: port_values[name] for subject, port_values in table.items()}
        yield f"{name} of RoCE ports", by_subject
    setters = read_setters(machine) if table else []
    if not isinstance(setters, str):
        enabled = [file.path for file in setters if file.enabled]
        yield "files that set RoCE at boot", ", ".join(enabled)


def _interfaces(machine: Machine) -> Iterator[tuple[str, Values]]:
    """Hardware interfaces without RDMA (the fabric of some clouds), and bonds.

    Pods and guests have only virtual ones.
    """
    named = {port.netdev for port in machine.ports}
    plain = [
        interface
        for interface in machine.interfaces.values()
        if interface.physical
        and not interface.rdma
        and not interface.slaves
        and interface.name not in named
    ]
    yield "other interfaces", ", ".join(interface.name for interface in plain)
    virtual = [
        interface
        for interface in machine.interfaces.values()
        if interface.up and not interface.physical and not interface.name.startswith(VIRTUAL)
    ]
    mtus = {interface.name: str(interface.mtu or "") for interface in plain + virtual}
    yield "MTU of other interfaces", mtus
    rates = {interface.name: _rate_text(interface) for interface in plain}
    yield "rate of other interfaces", rates
    drivers = {interface.name: _driver(machine, interface.name) for interface in plain}
    yield "driver of other interfaces", drivers
    for name, bond in read_bonds(machine).items():
        up = sum(slave.up for slave in bond.slaves)
        text = f"{bond.mode}, {bond.policy}, {up} of {len(bond.slaves)} slaves up"
        yield f"bond {name}", text


def _rate_text(interface: Interface) -> str:
    if not interface.rate or not interface.up:
        return ""
    return f"{interface.rate * 8 / 1e9:g} Gbit/s"


def merged(values: Values) -> str:
    """One text for the values of several parts: the value alone if all have it.

    Else `9000 (7), 1500 (mlx5_3)`: the most common value with the number of its parts, the others
    with the names of theirs.
    """
    if isinstance(values, str):
        return values
    parts: dict[str, list[str]] = {}
    for part, value in values.items():
        parts.setdefault(value, []).append(part)
    if len(parts) < 2:
        return next(iter(parts), "")
    first, *others = sorted(parts.items(), key=lambda item: -len(item[1]))
    value, names = first
    texts = [f"{value or NONE} ({len(names)})"]
    texts += [f"{value or NONE} ({', '.join(names)})" for value, names in others]
    return ", ".join(texts)


def _driver(machine: Machine, netdev: str) -> str:
    driver = ethtool.driver(machine, netdev)
    return f"{driver.name} {driver.version}" if isinstance(driver, ethtool.Driver) else ""


def _roce_v2_gids(machine: Machine, path: str) -> str:
    """Indices of the RoCE v2 GIDs whose address is not link-local."""
    indices = []
    for index in machine.names(f"{path}/gid_attrs/types"):
        version = machine.text(f"{path}/gid_attrs/types/{index}")
        gid = machine.text(f"{path}/gids/{index}") or ""
        if version == "RoCE v2" and gid.strip("0:") and not gid.startswith("fe80"):
            indices.append(index)
    return ", ".join(sorted(indices, key=int))


def _partition_keys(machine: Machine, port: RdmaPort) -> str:
    """Keys in use, sorted: the order depends on when the subnet manager assigned them."""
    folder = f"{port.path}/pkeys"
    indices = machine.names(folder)
    if port.layer != INFINIBAND:
        return ""
    keys = [machine.text(f"{folder}/{index}") or "" for index in indices]
    return ", ".join(sorted(key for key in keys if key.strip("0x")))


def _environment(machine: Machine) -> Iterator[tuple[str, str]]:
    for name, value in (machine.environment or {}).items():
        if not _OF_ONE_RANK.fullmatch(name):
            yield f"${name}", value
    for name, setting in variables(machine).items():
        if setting.file:
            yield f"{name} in {setting.file}", setting.value


READERS: tuple[Read, ...] = (
    _files,
    _kernel_options,
    _gpus,
    _ports,
    _roce,
    _interfaces,
    _libraries,
    _environment,
)
