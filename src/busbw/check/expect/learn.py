"""What a node has, as the expectations of a file.

Only values that could be read, and that all parts of a group share.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from busbw.check.expect import seen
from busbw.check.expect.spec import (
    Cpus,
    Expectations,
    Gpus,
    Interfaces,
    Memory,
    Mount,
    Ports,
    Storage,
    Versions,
)
from busbw.check.gpu.per_gpu import confined
from busbw.check.machine import Machine, Port
from busbw.check.registry import CHECKS, examine
from busbw.check.types import CheckReport
from busbw.host.gpu import gpus_on_pci, switches_on_pci
from busbw.host.interfaces import Interface
from busbw.host.mounts import Mounted, read_mounts, read_space, total_bytes
from busbw.host.source import Source

Table = TypeVar("Table", bound=msgspec.Struct)
Part = TypeVar("Part")
Value = TypeVar("Value")
TOO_LARGE = 1 << 63  # for an integer of TOML
ENOUGH = 0.95  # of this node's size: drives of one nominal size differ a little
AUTOMATIC = "autofs"
# Mounts that come and go: of containers, sessions and images.
PASSING = (
    "/run/", "/media/", "/snap/", "/tmp/", "/var/lib/docker/", "/var/lib/containerd/",
    "/var/lib/containers/", "/var/lib/kubelet/",
)  # fmt: skip


def learn(machine: Machine) -> Expectations:
    """The expectations that this machine meets.

    What cannot be read, or understood, is not expected.
    """
    return Expectations(
        gpus=_one(_gpus, machine, Gpus()),
        ports=_all(_ports, machine),
        interfaces=_all(_interfaces, machine),
        cpus=_one(_cpus, machine, Cpus()),
        memory=_one(_memory, machine, Memory()),
        versions=_one(_versions, machine, Versions()),
        storage=_one(_storage, machine, Storage()),
        mounts=_all(_mounts, machine),
    )


def learned(source: Source, name: str = "") -> tuple[CheckReport, Expectations]:
    """The findings of all checks, and what is expected if they are good enough.

    `name` is the snapshot's name.
    """
    machine = Machine(source)
    return examine(machine, CHECKS, name), learn(machine)


def _one(read: Callable[[Machine], Table], machine: Machine, nothing: Table) -> Table:
    try:
        return _valid(read(machine))
    except Exception:  # noqa: BLE001 - files of a broken machine, and snapshots, may hold anything
        return nothing


def _all(read: Callable[[Machine], list[Table]], machine: Machine) -> list[Table]:
    try:
        return [_valid(one) for one in read(machine)]
    except Exception:  # noqa: BLE001 - as above
        return []


def _valid(table: Table) -> Table:
    """The table without values that a file may not have, such as an MTU of -1."""
    values = {
        one.name: (getattr(table, one.name), one.type) for one in msgspec.structs.fields(table)
    }
    return type(table)(
        **{name: value for name, (value, kind) in values.items() if _allowed(value, kind)}
    )


def _allowed(value: object, kind: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return not isinstance(value, int) or value < TOO_LARGE


def _alike(values: Iterable[Value | None]) -> Value | None:
    """The value that all have; None if they differ, or if one could not be read."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _least(values: Sequence[int | None]) -> int | None:
    """The smallest; None if one could not be read."""
    known = [value for value in values if value]
    return min(known) if known and len(known) == len(values) else None


def _gpus(machine: Machine) -> Gpus:
    gpus = [gpu for gpu in seen.gpus(machine) if not gpu.error]
    switches = len(switches_on_pci(machine)) or None
    if not gpus:
        return Gpus(nvswitches=switches)  # without NVML nobody can say later that they are right
    return Gpus(
        count=len(gpus) if confined(machine) else max(len(gpus), len(gpus_on_pci(machine))),
        addresses=[gpu.address for gpu in gpus if gpu.address],
        model=_alike(gpu.model for gpu in gpus) or None,
        memory_bytes=_least([gpu.memory_bytes for gpu in gpus]),
        vbios=_alike(gpu.vbios for gpu in gpus) or None,
        persistence=_alike(gpu.persistence for gpu in gpus) or None,  # that it is off is no virtue
        ecc=_alike(gpu.ecc for gpu in gpus) or None,
        mig=_alike(gpu.mig for gpu in gpus),
        nvlinks=_alike(gpu.nvlinks for gpu in gpus) or None,
        nvlink_gb_s=_alike(gpu.nvlink_gb_s for gpu in gpus),
        nvswitches=switches,
        pcie_gt_s=_alike(gpu.pcie_gt_s for gpu in gpus),
        pcie_width=_alike(gpu.pcie_width for gpu in gpus),
    )


def _grouped(parts: Sequence[Part], key: Callable[[Part], object]) -> list[list[Part]]:
    """Parts with the same key together, the largest group first."""
    found: dict[object, list[Part]] = {}
    for part in parts:
        found.setdefault(key(part), []).append(part)
    return sorted(found.values(), key=len, reverse=True)


def _ports(machine: Machine) -> list[Ports]:
    """Of ports that are down, only that they are there."""

    def like(port: Port) -> tuple[object, ...]:
        return port.layer, port.active, seen.port_rate(machine, port)

    return [_port_group(machine, group) for group in _grouped(seen.ports(machine), like)]


def _port_group(machine: Machine, ports: Sequence[Port]) -> Ports:
    links = [seen.port_link(machine, port) for port in ports]
    active = ports[0].active
    return Ports(
        count=len(ports),
        names=[port.name for port in ports],
        link_layer=ports[0].layer or None,
        state=seen.port_state(machine, ports[0]) if active else None,
        rate_gbit_s=seen.port_rate(machine, ports[0]),
        pcie_gt_s=_alike(link.speed for link in links) if active else None,
        pcie_width=_alike(link.width for link in links) if active else None,
    )


def _interfaces(machine: Machine) -> list[Interfaces]:
    """Those that are up."""

    def like(one: Interface) -> tuple[object, ...]:
        return seen.interface_rate(one), one.mtu

    groups = _grouped([one for one in seen.interfaces(machine) if one.up], like)
    expected = []
    for group in groups:
        names = [interface.name for interface in group]
        rate, mtu = seen.interface_rate(group[0]), group[0].mtu
        expected.append(Interfaces(count=len(group), names=names, rate_gbit_s=rate, mtu=mtu))
    return expected


def _cpus(machine: Machine) -> Cpus:
    return Cpus(
        sockets=seen.sockets(machine),
        online=seen.online(machine),
        numa_nodes=seen.numa_nodes(machine),
    )


def _memory(machine: Machine) -> Memory:
    return Memory(ram_bytes=seen.ram_bytes(machine), hugepages=seen.hugepages(machine) or None)


def _storage(machine: Machine) -> Storage:
    return Storage(nvme=len(seen.nvme(machine) or ()) or None)


def _versions(machine: Machine) -> Versions:
    system, driver, kernel = seen.os_release(machine), seen.driver(machine), seen.kernel(machine)
    version = system.get("VERSION_ID")
    return Versions(
        driver_min=driver if driver and seen.version(driver) else None,
        kernel_min=kernel if kernel and seen.version(kernel) else None,
        os=system.get("ID") or None,
        os_min=version if version and seen.version(version) else None,
    )


def _mounts(machine: Machine) -> list[Mount]:
    mounted = read_mounts(machine)
    kept = {} if isinstance(mounted, str) else _lasting(mounted)
    return [_mount(machine, mount) for mount in sorted(kept.values(), key=lambda mount: mount.path)]


def _lasting(mounted: dict[str, Mounted]) -> dict[str, Mounted]:
    """File systems with data that stay, each once.

    Parts of one that are mounted again do not count, nor what an automounter mounts on demand.
    """
    on_demand = tuple(f"{mount.path}/" for mount in mounted.values() if mount.kind == AUTOMATIC)
    found: dict[str, Mounted] = {}
    for mount in sorted(mounted.values(), key=lambda mount: len(mount.path)):
        whole = mount.root == "/" or mount.kind == "btrfs"
        if (
            mount.keeps_data
            and whole
            and not f"{mount.path}/".startswith(PASSING + on_demand)
            and mount.path.startswith("/")
        ):
            found.setdefault(f"{mount.device} {mount.root}", mount)
    return found


def _mount(machine: Machine, mounted: Mounted) -> Mount:
    size = total_bytes(read_space(machine, mounted.path))
    return Mount(
        path=mounted.path,
        type=mounted.kind,
        min_bytes=int(size * ENOUGH) if size else None,
        writable=mounted.writable or None,
    )
