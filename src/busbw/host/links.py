"""The links of a host that a watch follows: RDMA ports, interfaces without RDMA, and NVLink and
PCIe of GPUs.
"""

from collections.abc import Collection

from busbw.core.link_samples import ETHERNET, NVLINK, PCIE, HostLink
from busbw.core.topology import Gpu, Nic
from busbw.host.gpu import pcie_rate, read_gpus, short_bus
from busbw.host.interfaces import NET, NOT_A_PORT
from busbw.host.nic import RDMA, read_nics
from busbw.host.source import Source


def same_namespace(source: Source, interfaces: Collection[str]) -> bool:
    """Whether /sys shows the network namespace whose `interfaces` /proc/net/dev lists.

    /sys shows the namespace that mounted it.
    """
    return set(source.names(NET)) - {NOT_A_PORT[1]} == set(interfaces)


def network_links(source: Source, interfaces: Collection[str]) -> list[HostLink]:
    """RDMA ports first, then interfaces without RDMA.

    Virtual interfaces are left out if there is another port, loopback always.
    """
    sysfs_matches = same_namespace(source, interfaces)
    physical: list[HostLink] = []
    virtual: list[HostLink] = []
    for nic in read_nics(source):
        if nic.kind != ETHERNET or sysfs_matches:
            link = _link(source, nic, interfaces if sysfs_matches else ())
            (virtual if nic.virtual else physical).append(link)
    if not sysfs_matches:
        virtual += [
            HostLink(name, ETHERNET, interfaces=(name,))
            for name in sorted(interfaces)
            if name not in NOT_A_PORT
        ]
    return physical or virtual


def _link(source: Source, nic: Nic, interfaces: Collection[str]) -> HostLink:
    device = port = ""
    if nic.kind != ETHERNET:
        device, _, port = nic.name.partition(":")
        port = port or "1"
    members = tuple(name for name in _members(source, nic, device) if name in interfaces)
    bond = nic.netdev if nic.slaves else ""
    return HostLink(nic.name, nic.kind, nic.rate, members, bond, device, port)


def _members(source: Source, nic: Nic, device: str) -> tuple[str, ...]:
    """The interfaces whose traffic is the port's."""
    if nic.slaves:
        return tuple(nic.slaves)
    of_device = source.names(f"{RDMA}/{device}/device/net") if device else ()
    # Where each slave of a bond has an RDMA device, `netdev` is the bond: the port's counters are
    # those of its own slave.
    if len(of_device) == 1:
        return of_device
    return (nic.netdev,) if nic.netdev else ()


def gpu_links(source: Source) -> tuple[list[HostLink], str]:
    """NVLink, where there is any, and PCIe of every GPU; a text says why there are none.

    PCIe's rate is the rate of its slot at full clock.
    """
    read = read_gpus(source)
    return [link for gpu in read.gpus for link in _links_of(gpu)], read.reason


def _links_of(gpu: Gpu) -> list[HostLink]:
    bus = short_bus(gpu.bus_id)
    links = []
    if gpu.nvlink != 0:
        rate = gpu.nvlink * gpu.nvlink_rate if gpu.nvlink and gpu.nvlink_rate else None
        links.append(HostLink(f"GPU{gpu.index} NVLink", NVLINK, rate, bus=bus))
    pcie = pcie_rate(gpu.pcie_gen_max, gpu.pcie_width)
    return [*links, HostLink(f"GPU{gpu.index} PCIe", PCIE, pcie, bus=bus)]


def matches(link: HostLink, names: Collection[str]) -> bool:
    """Whether the link, its device, its bond or one of its interfaces has one of the names."""
    own_names = {link.name, link.device, link.bond, *link.interfaces} - {""}
    return not own_names.isdisjoint(names)
