"""The network interfaces of a machine, from sysfs.

`nic` lists RDMA ports too, and leaves out the interfaces over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from busbw.host.cpu import numa_node
from busbw.host.source import Source

NET = "/sys/class/net"
MBIT = 1e6 / 8
NOT_A_PORT = ("lo", "bonding_masters")  # the second is a file of the bonding driver


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface."""

    name: str
    rate: float | None  # bytes per second by its driver, which makes it up if not `physical`
    up: bool
    mtu: int | None
    physical: bool  # hardware of this machine that no other interface represents
    numa: int | None
    rdma: bool  # the same PCI function has an RDMA device
    slaves: tuple[str, ...] = ()
    mode: str = ""  # of a bond
    master: str = ""  # the bond it belongs to


def read_interfaces(source: Source) -> dict[str, Interface]:
    """Every interface but loopback, by name.

    A bond's rate is the sum over its slaves that are up (active-backup: the largest).
    """
    names = [name for name in source.names(NET) if name not in NOT_A_PORT]
    interfaces = {name: _interface(source, name) for name in names}
    masters = {slave: bond.name for bond in interfaces.values() for slave in bond.slaves}
    for name in names:
        interfaces[name] = replace(interfaces[name], master=masters.get(name, ""))
    return {
        name: _resolve_bond(interface, interfaces) if interface.slaves else interface
        for name, interface in interfaces.items()
    }


def _interface(source: Source, name: str) -> Interface:
    base = f"{NET}/{name}"
    speed = number(source.read(f"{base}/speed").text)
    return Interface(
        name=name,
        # the kernel writes -1 for unknown
        rate=speed * MBIT if speed is not None and speed > 0 else None,
        up=source.read(f"{base}/operstate").text == "up",
        mtu=number(source.read(f"{base}/mtu").text),
        physical=is_hardware(source, base),
        numa=numa_node(source, f"{base}/device"),
        rdma=bool(source.names(f"{base}/device/infiniband")),
        slaves=tuple((source.read(f"{base}/bonding/slaves").text or "").split()),
        mode=(source.read(f"{base}/bonding/mode").text or "").partition(" ")[0],
    )


def _resolve_bond(bond: Interface, interfaces: dict[str, Interface]) -> Interface:
    slaves = [interfaces[name] for name in bond.slaves if name in interfaces]
    numas = {slave.numa for slave in slaves}
    return replace(
        bond,
        rate=_bond_rate([slave.rate for slave in slaves if slave.up], bond.mode),
        physical=len(slaves) == len(bond.slaves) and all(slave.physical for slave in slaves),
        numa=numas.pop() if len(numas) == 1 else None,
    )


def _bond_rate(rates: Sequence[float | None], mode: str) -> float | None:
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return None
    return max(known) if mode == "active-backup" else sum(known)


def is_hardware(source: Source, base: str) -> bool:
    """Whether the class directory `base` has a device that is no virtual function.

    A virtual function sends through the port of its physical function; counting both would count
    that port twice.
    """
    device = f"{base}/device"
    present = source.link(device) is not None or bool(source.names(device))
    return present and source.link(f"{device}/physfn") is None


def number(text: str | None) -> int | None:
    """The integer in a sysfs file; None for any other text."""
    try:
        return int(text) if text else None
    except ValueError:
        return None
