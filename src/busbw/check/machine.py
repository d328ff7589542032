"""One machine for the checks: reads are cached, and what several checks need is parsed once.

`gpus` and `nics` give its GPUs and network controllers, with the names that findings use.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from busbw.core.env import carried
from busbw.core.topology import Host
from busbw.host.cpu import VIRTUAL, hypervisor_bit
from busbw.host.gpu_health import GpuHealth
from busbw.host.host_facts import read_host
from busbw.host.interfaces import Interface, read_interfaces
from busbw.host.kernel_log_file import LogSource
from busbw.host.nic import RDMA
from busbw.host.nvml_health import read_health
from busbw.host.pci import PciDevice, device_directory, read_devices
from busbw.host.source import Reading, Source

ENVIRONMENT, USER = "environment", "euid"
HYPERVISORS = {
    "QEMU": "QEMU", "Microsoft Corporation": "Hyper-V", "VMware, Inc.": "VMware", "Xen": "Xen",
    "Amazon EC2": "EC2", "Google": "Google Compute Engine", "OpenStack Foundation": "OpenStack",
    "Alibaba Cloud": "Alibaba Cloud",
}  # fmt: skip
UNNAMED = "a hypervisor"
Fact = TypeVar("Fact")
NONE = "no NVIDIA GPU and no network controller on PCI"
WITH_CPU = ("NVIDIA GH", "NVIDIA GB")  # models connected to their CPU by NVLink-C2C


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device."""

    device: str
    number: str
    path: str  # its directory
    layer: str  # InfiniBand or Ethernet
    active: bool
    netdev: str  # '' if it has none here, as in a container
    bdf: str  # PCI address of the device; '' if it has none

    @property
    def name(self) -> str:
        """`mlx5_0`, with the port's number if it is not 1."""
        return self.device if self.number == "1" else f"{self.device}:{self.number}"

    @property
    def roce(self) -> bool:
        """Whether it is an Ethernet port."""
        return self.layer == "Ethernet"


class Machine:
    """A machine behind a source. Every file and call is read at most once.

    `earlier` is an earlier reading of the same machine since its last boot, for how counters rose,
    or why there is none that was asked for.
    """

    def __init__(self, source: Source, earlier: "Machine | str | None" = None) -> None:
        self.earlier = None if isinstance(earlier, str) else earlier
        self.no_earlier = earlier if isinstance(earlier, str) else ""
        self._source = source
        self._files: dict[str, Reading] = {}
        self._texts: dict[str, str | None] = {}
        self._calls: dict[str, Reading] = {}
        self.results: dict[Any, Any] = {}  # of the functions that are read `once`
        self.is_log = isinstance(source, LogSource)  # only its kernel log is known

    def read(self, path: str) -> Reading:
        if path not in self._files:
            self._files[path] = self._source.read(path)
        return self._files[path]

    def text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = self.read(path).text
        return self._texts[path]

    def names(self, path: str) -> tuple[str, ...]:
        return self._source.names(path)

    def link(self, path: str) -> str | None:
        return self._source.link(path)

    def target(self, path: str) -> str:
        """The last name in what a symbolic link points to; '' without a link."""
        return (self.link(path) or "").rpartition("/")[2]

    def call(self, name: str, live: Callable[[], str]) -> Reading:
        """Text of a library call or command, by its name in a snapshot."""
        if name not in self._calls:
            self._calls[name] = self._source.call(name, live)
        return self._calls[name]

    @cached_property
    def host(self) -> Host:
        """The facts that results carry: GPUs, network ports, kernel, driver."""
        return read_host(self)

    @cached_property
    def interfaces(self) -> dict[str, Interface]:
        return read_interfaces(self)

    @cached_property
    def ports(self) -> tuple[RdmaPort, ...]:
        ports = []
        for device in self.names(RDMA):
            bdf = self.target(f"{RDMA}/{device}/device")
            for number in self.names(f"{RDMA}/{device}/ports"):
                path = f"{RDMA}/{device}/ports/{number}"
                port = RdmaPort(
                    device=device,
                    number=number,
                    path=path,
                    layer=self.text(f"{path}/link_layer") or "",
                    active=(self.text(f"{path}/state") or "").endswith("ACTIVE"),
                    netdev=self._netdev(device, number),
                    bdf=bdf,
                )
                ports.append(port)
        return tuple(ports)

    def _netdev(self, device: str, number: str) -> str:
        """The interface of a port; '' if it has none here."""
        named = self.text(f"{RDMA}/{device}/ports/{number}/gid_attrs/ndevs/0")
        names = self.names(f"{RDMA}/{device}/device/net")
        if named:
            return named
        for name in names:
            if self.text(f"/sys/class/net/{name}/dev_port") == str(int(number) - 1):
                return name
        return ""

    @property
    def roce_ports(self) -> tuple[RdmaPort, ...]:
        return tuple(port for port in self.ports if port.roce)

    @cached_property
    def modules(self) -> frozenset[str]:
        """Loaded kernel modules, and those that are built in and have a directory."""
        loaded = {line.split(" ", 1)[0] for line in (self.text("/proc/modules") or "").splitlines()}
        return frozenset(loaded | set(self.names("/sys/module")))

    @cached_property
    def cmdline(self) -> tuple[str, ...]:
        return tuple((self.text("/proc/cmdline") or "").split())

    @cached_property
    def hypervisor(self) -> str:
        """The hypervisor under this machine; '' on bare metal.

        An x86 CPU sets a bit for all guests, which decides if it is known: containers, small
        virtual machines and cloud bare metal have no DMI or a misleading one. DMI gives the name.
        """
        bit = self.call(VIRTUAL, hypervisor_bit).text
        if bit == "0":
            return ""
        return self._named_hypervisor() or (UNNAMED if bit == "1" else "")

    def _named_hypervisor(self) -> str:
        if self.text("/sys/hypervisor/type"):
            return (self.text("/sys/hypervisor/type") or "").capitalize()
        vendor = self.text("/sys/class/dmi/id/sys_vendor") or ""
        product = self.text("/sys/class/dmi/id/product_name") or ""
        if vendor == "Microsoft Corporation" and product != "Virtual Machine":
            return ""
        metal = vendor == "Amazon EC2" and ".metal" in product
        return "" if metal else HYPERVISORS.get(vendor, "")

    @cached_property
    def container(self) -> bool:
        """Whether this is a container.

        With cgroup v2 a container's cgroup is `/`, and containerd creates no marker file. But every
        runtime mounts a file over /etc/hosts.
        """
        markers = ("/.dockerenv", "/run/.containerenv")
        marked = any(self.read(marker).data is not None for marker in markers)
        groups = self.text("/proc/1/cgroup") or ""
        named = any(word in groups for word in ("docker", "kubepods", "containerd", "libpod"))
        mounts = (self.text("/proc/self/mountinfo") or "").splitlines()
        return marked or named or any(map(_binds_hosts_file, mounts))

    @cached_property
    def environment(self) -> Mapping[str, str] | None:
        """Variables that affect communication, with likely secrets masked.

        None if a snapshot lacks them.
        """
        text = self.call(ENVIRONMENT, lambda: json.dumps(carried(os.environ))).text
        return dict(json.loads(text)) if text else None

    @cached_property
    def root(self) -> bool:
        """Whether the reads were made as root."""
        return self.call(USER, lambda: str(os.geteuid())).text == "0"


def _binds_hosts_file(mount: str) -> bool:
    """Whether a line of mountinfo is a mount over /etc/hosts that `ip netns` has not made."""
    fields = mount.split(" ")
    return len(fields) > 4 and fields[4] == "/etc/hosts" and "/etc/netns/" not in fields[3]


def understood(read: Callable[[Machine], Iterable[Fact]], machine: Machine) -> Iterator[Fact]:
    """The facts that `read` yields, up to the first that it cannot parse.

    Files of a broken machine, and snapshots, may hold anything.
    """
    try:
        yield from read(machine)
    except Exception:  # noqa: BLE001 - the check that reads the same says what is wrong with it
        return


@dataclass(frozen=True, slots=True)
class Part:
    """A device with its name: GPU 2, mlx5_0, eth0, or its address if it has none."""

    name: str
    device: PciDevice

    @property
    def path(self) -> str:
        return device_directory(self.device.bdf)


def gpus(machine: Machine) -> list[Part]:
    """NVIDIA GPUs, by NVML's labels where it lists them."""
    names = gpu_labels(machine)
    return [
        Part(names.get(bdf, bdf), device)
        for bdf, device in read_devices(machine).items()
        if device.gpu
    ]


def _health(machine: Machine) -> tuple[GpuHealth, ...]:
    return read_health(machine).gpus


def gpu_labels(machine: Machine) -> dict[str, str]:
    """NVML's labels of GPUs by PCI address; none if what it answered cannot be parsed."""
    return {gpu.bus_id: gpu.label for gpu in understood(_health, machine) if gpu.bus_id}


def with_cpu(machine: Machine, part: Part) -> str:
    """The model of a GPU connected to its CPU by NVLink-C2C instead of PCIe; '' for other parts."""
    gpus = understood(_health, machine)
    models = (gpu.name for gpu in gpus if gpu.bus_id == part.device.bdf)
    return next((model for model in models if model.startswith(WITH_CPU)), "")


def nics(machine: Machine) -> list[Part]:
    """RDMA devices except virtual functions; without RDMA all network controllers."""
    rdma = {port.bdf: port.device for port in machine.ports}
    physical = {bdf: device for bdf, device in read_devices(machine).items() if not device.virtual}
    rdma_devices = [Part(rdma[bdf], device) for bdf, device in physical.items() if bdf in rdma]
    return rdma_devices or [
        Part(_interface(machine, bdf), device) for bdf, device in physical.items() if device.network
    ]


def rdma_nics(machine: Machine) -> list[Part]:
    """The RDMA devices among the network controllers."""
    names = {port.device for port in machine.ports}
    return [nic for nic in nics(machine) if nic.name in names]


def _interface(machine: Machine, bdf: str) -> str:
    return next(iter(machine.names(f"{device_directory(bdf)}/net")), bdf)


def slots(parts: list[Part]) -> list[Part]:
    """One part per slot: functions of a slot share its link."""
    return list({part.device.slot: part for part in reversed(parts)}.values())[::-1]
