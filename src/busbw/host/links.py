"""The links of a host that a watch follows: RDMA ports, interfaces without RDMA, and NVLink and
PCIe of GPUs.

What GPUs send and receive over NVLink and PCIe, from NVML, to be read often.

Measured on H100 with driver 580: reading a field of NVLink takes 1.4 ms, a field of PCIe 0.2 ms, at
times more, most of it CPU time. NVLink's counters are KiB of data in 64 bits, without protocol
overhead. PCIe's are bytes in 32 bits, with overhead, which a full link wraps in less than 0.1 s. So
PCIe's are read twice, a short time apart, and give a rate over the time between NVML's own
timestamps.
"""

import time
from collections.abc import Collection
from typing import Any

from busbw.core.counters import Counter, Owner, at
from busbw.core.link_samples import ETHERNET, NVLINK, PCIE, Link
from busbw.core.topology import Gpu, Nic
from busbw.core.watch_counters import BY_NVML
from busbw.host.gpu import pcie_rate, read_gpus, short_bus
from busbw.host.interfaces import NET, NOT_A_PORT
from busbw.host.nic import RDMA, read_nics
from busbw.host.nvml import ask, field_value, start
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


ALL_LINKS = 0xFFFFFFFF  # UINT_MAX as scope: the sum over all links of the GPU (nvml.h)
PCIE_FIELDS = {"pcie_tx": "PCIE_COUNT_TX_BYTES", "pcie_rx": "PCIE_COUNT_RX_BYTES"}
PCIE_RANGE = 1 << 32
WINDOW_S = 0.01  # at least, between the two readings of PCIe's counters
LONGEST_US = 30_000  # in which 16 lanes of generation 6 do not wrap the counter: 126 GB/s
ERRORS: tuple[Counter, ...] = tuple(
    row for row in at(Owner.GPU) if row.name.startswith(("nvlink", "pcie"))
)
# when it was read, on the monotonic clock, and values by name
Reading = tuple[float, dict[str, int]]
Stamped = dict[str, tuple[int, int]]  # microseconds of NVML's clock and value, by name


class GpuTraffic:
    """An NVML session on all GPUs; Unavailable as host.nvml.start.

    `buses` are theirs, in NVML's order, as 0000:1b:00.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = start(nvml)
        self._handles: dict[str, Any] = {}
        for index in range(ask(self._nvml, self._nvml.nvmlDeviceGetCount) or 0):
            handle = ask(self._nvml, self._nvml.nvmlDeviceGetHandleByIndex, index)
            pci = (
                None if handle is None else ask(self._nvml, self._nvml.nvmlDeviceGetPciInfo, handle)
            )
            if pci is not None:
                self._handles[short_bus(pci.busId)] = handle

    @property
    def buses(self) -> tuple[str, ...]:
        """Bus ids of the GPUs."""
        return tuple(self._handles)

    def traffic(self) -> dict[str, Reading]:
        """Data of NVLink, and rate, generation and lanes of PCIe.

        What a GPU or driver lacks is absent. Takes 10 ms and more.
        """
        found = {
            bus: (time.monotonic(), self._values(handle, BY_NVML) | self._slot(handle))
            for bus, handle in self._handles.items()
        }
        before = {bus: self._pcie(handle) for bus, handle in self._handles.items()}
        time.sleep(WINDOW_S)
        for bus, handle in self._handles.items():
            found[bus][1].update(_pcie_rates(before[bus], self._pcie(handle)))
        return found

    def errors(self) -> dict[str, Reading]:
        """Error counters of NVLink and PCIe, as core/counters.py names them."""
        return {
            bus: (time.monotonic(), self._values(handle, ERRORS))
            for bus, handle in self._handles.items()
        }

    def _pcie(self, handle: Any) -> Stamped:
        named = {
            name: getattr(self._nvml, f"NVML_FI_DEV_{field}", None)
            for name, field in PCIE_FIELDS.items()
        }
        answers = self._answers(
            handle, {name: field for name, field in named.items() if field is not None}
        )
        return {
            name: (answer.timestamp, value)
            for name, answer in answers
            if (value := field_value(self._nvml, answer)) is not None
        }

    def _values(self, handle: Any, rows: tuple[Counter, ...]) -> dict[str, int]:
        named = {row.name: getattr(self._nvml, row.source, None) for row in rows}
        scoped = {
            name: (field, ALL_LINKS) if name in ("nvlink_tx", "nvlink_rx") else field
            for name, field in named.items()
            if field
        }
        return self._fields(handle, scoped)

    def _fields(self, handle: Any, fields: dict[str, Any]) -> dict[str, int]:
        read = (
            (name, field_value(self._nvml, answer))
            for name, answer in self._answers(handle, fields)
        )
        return {name: value for name, value in read if value is not None}

    def _answers(self, handle: Any, fields: dict[str, Any]) -> list[tuple[str, Any]]:
        answers = (
            ask(self._nvml, self._nvml.nvmlDeviceGetFieldValues, handle, list(fields.values()))
            or []
        )
        return list(zip(fields, answers, strict=False))

    def _slot(self, handle: Any) -> dict[str, int]:
        nvml = self._nvml
        now = {
            "pcie_gen": ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "pcie_width": ask(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        }
        return {name: value for name, value in now.items() if value}

    def close(self) -> None:
        """Release NVML."""
        ask(self._nvml, self._nvml.nvmlShutdown)


def _pcie_rates(before: Stamped, after: Stamped) -> dict[str, int]:
    """Bytes per second between two readings; none for readings so far apart that the counter may
    have wrapped more than once.
    """
    rates = {}
    for name in before.keys() & after.keys():
        (was_us, earlier), (now_us, value) = before[name], after[name]
        if 0 < now_us - was_us <= LONGEST_US:
            rates[name] = round((value - earlier) % PCIE_RANGE * 1_000_000 / (now_us - was_us))
    return rates
