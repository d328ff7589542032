"""What a node has, as the expectations of a file.

These are only values that could be read, and that all parts of a group share.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from busbw.check.expect import inventory
from busbw.check.expect.base import HOSTNAME
from busbw.check.expect.spec import (
    Cpus,
    Expectations,
    ExpectedGpus,
    ExpectedMemory,
    ExpectedPorts,
    Interfaces,
    Mount,
    Storage,
    Versions,
)
from busbw.check.gpu.per_gpu import confined
from busbw.check.machine import Machine, RdmaPort
from busbw.check.registry import CHECKS, examine
from busbw.check.types import CheckReport
from busbw.host.gpu import gpus_on_pci, switches_on_pci
from busbw.host.interfaces import Interface
from busbw.host.mounts import MountedFileSystem, read_mounts, read_space, total_bytes
from busbw.host.source import Source

Table = TypeVar("Table", bound=msgspec.Struct)
Part = TypeVar("Part")
Value = TypeVar("Value")
TOML_INTEGER_LIMIT = 1 << 63  # for an integer of TOML
MIN_SIZE_SHARE = 0.95  # of this node's size: drives of one nominal size differ a little
AUTOMATIC = "autofs"
# Mounts that come and go: of containers, sessions and images.
TEMPORARY_MOUNTS = (
    "/run/", "/media/", "/snap/", "/tmp/", "/var/lib/docker/", "/var/lib/containerd/",
    "/var/lib/containers/", "/var/lib/kubelet/",
)  # fmt: skip


def learn(machine: Machine) -> Expectations:
    """The expectations that this machine meets.

    What cannot be read, or understood, is not expected.
    """
    return Expectations(
        gpus=_read_table(_gpus, machine, ExpectedGpus()),
        ports=_read_tables(_ports, machine),
        interfaces=_read_tables(_interfaces, machine),
        cpus=_read_table(_cpus, machine, Cpus()),
        memory=_read_table(_memory, machine, ExpectedMemory()),
        versions=_read_table(_versions, machine, Versions()),
        storage=_read_table(_storage, machine, Storage()),
        mounts=_read_tables(_mounts, machine),
    )


def learned(source: Source, name: str = "") -> tuple[CheckReport, Expectations]:
    """The findings of all checks, and what is expected if they are good enough.

    `name` is the snapshot's name.
    """
    machine = Machine(source)
    return examine(machine, CHECKS, name), learn(machine)


def _read_table(read: Callable[[Machine], Table], machine: Machine, nothing: Table) -> Table:
    try:
        return _drop_invalid_values(read(machine))
    except Exception:  # noqa: BLE001 - files of a broken machine, and snapshots, may hold anything
        return nothing


def _read_tables(read: Callable[[Machine], list[Table]], machine: Machine) -> list[Table]:
    try:
        return [_drop_invalid_values(table) for table in read(machine)]
    except Exception:  # noqa: BLE001 - as above
        return []


def _drop_invalid_values(table: Table) -> Table:
    """The table without values that a file may not have, such as an MTU of -1."""
    values = {}
    for field in msgspec.structs.fields(table):
        value = getattr(table, field.name)
        if _is_allowed(value, field.type):
            values[field.name] = value
    return type(table)(**values)


def _is_allowed(value: object, kind: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return not isinstance(value, int) or value < TOML_INTEGER_LIMIT


def _common_value(values: Iterable[Value | None]) -> Value | None:
    """The value that all have; None if they differ, or if one could not be read."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _smallest(values: Sequence[int | None]) -> int | None:
    """The smallest value; None if one could not be read."""
    known = [value for value in values if value]
    return min(known) if known and len(known) == len(values) else None


def _gpus(machine: Machine) -> ExpectedGpus:
    gpus = [gpu for gpu in inventory.gpus(machine) if not gpu.error]
    switches = len(switches_on_pci(machine)) or None
    if not gpus:
        return ExpectedGpus(nvswitches=switches)  # without NVML, GPUs cannot be compared later
    return ExpectedGpus(
        count=len(gpus) if confined(machine) else max(len(gpus), len(gpus_on_pci(machine))),
        addresses=[gpu.address for gpu in gpus if gpu.address],
        model=_common_value(gpu.model for gpu in gpus) or None,
        memory_bytes=_smallest([gpu.memory_bytes for gpu in gpus]),
        vbios=_common_value(gpu.vbios for gpu in gpus) or None,
        serials=_serials(machine, gpus),
        # A file should not expect that it is off.
        persistence=_common_value(gpu.persistence for gpu in gpus) or None,
        ecc=_common_value(gpu.ecc for gpu in gpus) or None,
        mig=_common_value(gpu.mig for gpu in gpus),
        nvlinks=_common_value(gpu.nvlinks for gpu in gpus) or None,
        nvlink_gb_s=_common_value(gpu.nvlink_gb_s for gpu in gpus),
        nvswitches=switches,
        pcie_gt_s=_common_value(gpu.pcie_gt_s for gpu in gpus),
        pcie_width=_common_value(gpu.pcie_width for gpu in gpus),
    )


def _serials(machine: Machine, gpus: Sequence[inventory.InventoryGpu]) -> list[str]:
    """The serial number of each GPU after the name of the host; [] if one has none."""
    serials = [gpu.serial for gpu in gpus if gpu.serial]
    host = machine.text(HOSTNAME)
    if not host or len(serials) < len(gpus):
        return []
    return [f"{host} {serial}" for serial in serials]


def _group_by(parts: Sequence[Part], key: Callable[[Part], object]) -> list[list[Part]]:
    """Parts with the same key together, the largest group first."""
    groups: dict[object, list[Part]] = {}
    for part in parts:
        groups.setdefault(key(part), []).append(part)
    return sorted(groups.values(), key=len, reverse=True)


def _ports(machine: Machine) -> list[ExpectedPorts]:
    """Groups of ports alike. Of ports that are down, it learns only that they are there."""

    def traits(port: RdmaPort) -> tuple[object, ...]:
        return port.layer, port.active, inventory.port_rate(machine, port)

    return [_port_group(machine, group) for group in _group_by(inventory.ports(machine), traits)]


def _port_group(machine: Machine, ports: Sequence[RdmaPort]) -> ExpectedPorts:
    links = [inventory.port_link(machine, port) for port in ports]
    active = ports[0].active
    return ExpectedPorts(
        count=len(ports),
        names=[port.name for port in ports],
        link_layer=ports[0].layer or None,
        state=inventory.port_state(machine, ports[0]) if active else None,
        rate_gbit_s=inventory.port_rate(machine, ports[0]),
        firmware_min=_oldest([inventory.firmware(machine, port) or "" for port in ports]),
        pcie_gt_s=_common_value(link.speed for link in links) if active else None,
        pcie_width=_common_value(link.width for link in links) if active else None,
    )


def _oldest(versions: list[str]) -> str | None:
    """The oldest firmware of one model, whose first number is that of all; None for others."""
    numbers = {version: inventory.version(version) for version in versions}
    models = {number[:1] for number in numbers.values()}
    if len(models) > 1 or () in models:
        return None
    return min(versions, key=lambda version: numbers[version])


def _interfaces(machine: Machine) -> list[Interfaces]:
    """Groups of interfaces alike, only those that are up."""

    def traits(interface: Interface) -> tuple[object, ...]:
        return inventory.interface_rate(interface), interface.mtu

    groups = _group_by(
        [interface for interface in inventory.interfaces(machine) if interface.up], traits
    )
    expected = []
    for group in groups:
        names = [interface.name for interface in group]
        rate, mtu = inventory.interface_rate(group[0]), group[0].mtu
        expected.append(Interfaces(count=len(group), names=names, rate_gbit_s=rate, mtu=mtu))
    return expected


def _cpus(machine: Machine) -> Cpus:
    return Cpus(
        sockets=inventory.sockets(machine),
        online=inventory.online(machine),
        numa_nodes=inventory.numa_nodes(machine),
    )


def _memory(machine: Machine) -> ExpectedMemory:
    return ExpectedMemory(
        ram_bytes=inventory.ram_bytes(machine), hugepages=inventory.hugepages(machine) or None
    )


def _storage(machine: Machine) -> Storage:
    return Storage(nvme=len(inventory.nvme(machine) or ()) or None)


def _versions(machine: Machine) -> Versions:
    system, driver, kernel = (
        inventory.os_release(machine),
        inventory.driver(machine),
        inventory.kernel(machine),
    )
    version = system.get("VERSION_ID")
    return Versions(
        driver_min=driver if driver and inventory.version(driver) else None,
        kernel_min=kernel if kernel and inventory.version(kernel) else None,
        os=system.get("ID") or None,
        os_min=version if version and inventory.version(version) else None,
    )


def _mounts(machine: Machine) -> list[Mount]:
    mounted = read_mounts(machine)
    kept = {} if isinstance(mounted, str) else _lasting_mounts(mounted)
    return [_mount(machine, mount) for mount in sorted(kept.values(), key=lambda mount: mount.path)]


def _lasting_mounts(mounted: dict[str, MountedFileSystem]) -> dict[str, MountedFileSystem]:
    """File systems with data that stay, each once.

    Parts of one that are mounted again do not count, nor what an automounter mounts on demand.
    """
    on_demand = tuple(f"{mount.path}/" for mount in mounted.values() if mount.kind == AUTOMATIC)
    kept: dict[str, MountedFileSystem] = {}
    for mount in sorted(mounted.values(), key=lambda mount: len(mount.path)):
        is_whole = mount.root == "/" or mount.kind == "btrfs"
        passing = f"{mount.path}/".startswith(TEMPORARY_MOUNTS + on_demand)
        if mount.keeps_data and is_whole and not passing and mount.path.startswith("/"):
            kept.setdefault(f"{mount.device} {mount.root}", mount)
    return kept


def _mount(machine: Machine, mounted: MountedFileSystem) -> Mount:
    size = total_bytes(read_space(machine, mounted.path))
    return Mount(
        path=mounted.path,
        type=mounted.kind,
        min_bytes=int(size * MIN_SIZE_SHARE) if size else None,
        writable=mounted.writable or None,
    )
