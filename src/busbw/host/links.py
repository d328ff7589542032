"""The links of a host that a watch follows: RDMA ports, interfaces without RDMA, and NVLink and
PCIe of GPUs.
"""

from collections.abc import Collection

from busbw.core.link_samples import ETHERNET, NVLINK, PCIE, Link
from busbw.core.topology import Gpu, Nic
from busbw.host.gpu import pcie_rate, read_gpus, short_bus
from busbw.host.interfaces import NET, NOT_A_PORT
from busbw.host.nic import RDMA, read_nics
from busbw.host.source import Source


def same_namespace(source: Source, interfaces: Collection[str]) -> bool:
    """Whether /sys shows the network namespace whose `interfaces` /proc/net/dev lists: /sys
    shows the one that mounted it.
    """
    return set(source.names(NET)) - {NOT_A_PORT[1]} == set(interfaces)


def network_links(source: Source, interfaces: Collection[str]) -> list[Link]:
    """RDMA ports first, then interfaces without RDMA.

    Virtual interfaces only if there is no other port; loopback never.
    """
    shown = same_namespace(source, interfaces)
    found = [
        _port(source, nic, interfaces if shown else ())
        for nic in read_nics(source)
        if nic.kind != ETHERNET or shown
    ]
    if not shown:
        found += [
            (Link(name, ETHERNET, interfaces=(name,)), True)
            for name in sorted(interfaces)
            if name not in NOT_A_PORT
        ]
    real = [link for link, virtual in found if not virtual]
    return real or [link for link, _ in found]


def _port(source: Source, nic: Nic, interfaces: Collection[str]) -> tuple[Link, bool]:
    device, _, port = ("", "", "") if nic.kind == ETHERNET else nic.name.partition(":")
    own = source.names(f"{RDMA}/{device}/device/net") if device else ()
    # Where each slave of a bond has an RDMA device, `netdev` is the bond: the port's counters are
    # those of its own slave.
    members = tuple(nic.slaves) or (own if len(own) == 1 else (nic.netdev,) if nic.netdev else ())
    here = tuple(name for name in members if name in interfaces)
    return (
        Link(
            nic.name,
            nic.kind,
            nic.rate,
            here,
            nic.netdev if nic.slaves else "",
            device,
            port or ("1" if device else ""),
        ),
        nic.virtual,
    )


def gpu_links(source: Source) -> tuple[list[Link], str]:
    """NVLink, where there is any, and PCIe of every GPU; a text says why there are none.

    PCIe's rate is that of its slot at full clock.
    """
    found = read_gpus(source)
    return [link for gpu in found.gpus for link in _of(gpu)], found.reason


def _of(gpu: Gpu) -> list[Link]:
    bus = short_bus(gpu.bus_id)
    rate = gpu.nvlink * gpu.nvlink_rate if gpu.nvlink and gpu.nvlink_rate else None
    nvlink = [Link(f"GPU{gpu.index} NVLink", NVLINK, rate, bus=bus)] if gpu.nvlink != 0 else []
    return [
        *nvlink,
        Link(f"GPU{gpu.index} PCIe", PCIE, pcie_rate(gpu.pcie_gen_max, gpu.pcie_width), bus=bus),
    ]


def matches(link: Link, names: Collection[str]) -> bool:
    """Whether one of the names is the link's, its device's, its bond's, or that of one of its
    interfaces.
    """
    return any(
        name in (link.name, link.device, link.bond, *link.interfaces) for name in names if name
    )
