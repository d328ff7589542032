"""Repeated readings of all links of a host.

Descriptors stay open; ports that disappear are left out until they are back.

counters = LinkCounters(LiveMachine())    finds the links and opens their counters
sample = counters.read()           any number of times
counters.close()
"""

import itertools
import math
import socket
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.link_samples import HOST, NVLINK, PCIE, CounterGroup, GpuState, HostLink, HostSample
from busbw.core.telemetry import TCP
from busbw.core.watch_counters import ethtool_names, tcp_names
from busbw.host import ethtool
from busbw.host.cpu_usage import CpuUsage
from busbw.host.gpu_traffic import GpuTraffic
from busbw.host.interfaces import NET, number
from busbw.host.links import gpu_links, matches, network_links, same_namespace
from busbw.host.nic import RDMA
from busbw.host.port_counters import Follow, device_counters, follow, snmp
from busbw.host.rdma_ports import PortFiles, queue_pairs
from busbw.host.source import LiveMachine, Source, Unavailable

QUEUE_PAIRS_EVERY_S = 1.0
ERRORS_EVERY_S = 5.0  # error counters of GPUs: NVML takes milliseconds for them
NVML, HOST_FILES = "NVML", "/proc and /sys"  # what is read besides links
CARRIER = "carrier_down_count"
# Other states, such as `unknown` of a tunnel, say nothing.
OPERATIONAL = {b"up": 1, b"down": 0, b"lowerlayerdown": 0}


class LinkCounters:
    """Reads the links of a host that match `names`, all links by default.

    With `gpus` it reads the links of GPUs too, with `states` also what slows GPUs and who uses
    them, with `system` CPUs, memory and queue pairs.
    Links named in `without` are left out. Errors of GPUs are read again after `errors_every_s`.
    `note` is called with the name of a link, or NVML, before it is read, so that another process
    can see which of them hangs.

    UsageError if no link matches, NoMeasurement if the host has none.
    """

    def __init__(
        self,
        source: Source | None = None,
        names: Collection[str] = (),
        *,
        gpus: bool = True,
        states: bool = False,
        system: bool = False,
        errors_every_s: float = ERRORS_EVERY_S,
        without: Collection[str] = (),
        note: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._source, self._names = source or LiveMachine(), tuple(names)
        self._without, self._note, self._states = frozenset(without), note, states
        # The files of interfaces are opened again when links change, the others once.
        self._interface_files, self._host_files = ExitStack(), ExitStack()
        self._identities = itertools.count(1)
        self._inventory: object = None
        self._ports: list[tuple[HostLink, PortFiles]] = []
        self._interfaces: dict[str, _InterfaceCounters] = {}
        self._dev = follow(self._source, "/proc/net/dev", self._host_files)
        tcp = [
            follow(self._source, f"/proc/net/{file}", self._host_files)
            for file in ("snmp", "netstat")
        ]
        self._tcp = [file for file in tcp if file]
        note(NVML)
        self._gpus = _Gpus(self._source, self._names, errors_every_s) if gpus else None
        self._system = CpuUsage(self._source, self._host_files) if system else None
        self._queue_pairs = _QueuePairs()
        self._links: tuple[HostLink, ...] = ()
        self._unread: list[str] = []
        self._open_links(self._devices())
        if not self._links:
            error = self._no_link_error()
            self.close()
            raise error

    def read(self) -> HostSample:
        at_s, devices = time.monotonic(), self._devices()
        changed = self._take_inventory(devices) != self._inventory
        if changed or any(files.lost for _, files in self._ports):
            self._open_links(devices)
        groups: dict[tuple[str, str], CounterGroup] = {}
        for link, files in self._ports:
            self._note(link.name)
            groups |= {(link.name, kind): group for kind, group in files.read().items()}
        indices = _indices()
        for name, interface in self._interfaces.items():
            if name in devices:
                self._note(name)
                read = interface.read(devices[name], at_s, indices.get(name, 0))
                groups |= {(name, kind): group for kind, group in read.items()}
        self._note(HOST_FILES)
        groups[TCP, "snmp"] = CounterGroup(time.monotonic(), 0, self._segments())
        if self._system:
            groups[HOST, "system"] = self._system.read()
            groups |= self._queue_pairs.read(link for link, _ in self._ports)
        if self._gpus:
            self._note(NVML)
            groups |= self._gpus.read()
        states = self._gpus.states() if self._gpus and self._states else ()
        return HostSample(at_s, self._links, groups, tuple(self._unread), states)

    def _devices(self) -> dict[str, dict[str, int]]:
        return device_counters(self._dev() or b"") if self._dev else {}

    def _segments(self) -> dict[str, int]:
        values: dict[str, int] = {}
        for file in self._tcp:
            values |= snmp(file() or b"")
        return {name: value for name, value in values.items() if name in tcp_names()}

    def _take_inventory(self, devices: Collection[str]) -> object:
        """Names of the interfaces and RDMA devices: if they change, links are searched again."""
        return frozenset(devices), self._source.names(RDMA)

    def _open_links(self, devices: dict[str, dict[str, int]]) -> None:
        """Find the links and open what is new.

        A port that is still here keeps its identity: its counters go on.
        """
        self._note(HOST_FILES)
        self._inventory = self._take_inventory(devices)
        before = {link.name: files for link, files in self._ports}
        kept = {name: files for name, files in before.items() if not files.lost}
        links = [link for link in network_links(self._source, devices) if self._follows(link)]
        self._ports = []
        for link in links:
            if link.device:
                self._note(link.name)
                files = kept.get(link.name) or PortFiles(
                    self._source, f"{RDMA}/{link.device}/ports/{link.port}", next(self._identities)
                )
                self._ports.append((link, files))
        for files in set(before.values()) - {files for _, files in self._ports}:
            files.close()
        interfaces = dict.fromkeys(name for link in links for name in link.interfaces)
        self._open_interfaces(interfaces, devices)
        self._links = (*links, *(self._gpus.links if self._gpus else ()))
        reasons = [files.reason(link.name) for link, files in self._ports]
        if self._gpus:
            reasons.append(self._gpus.reason)
        self._unread = [reason for reason in reasons if reason]

    def _open_interfaces(self, names: Collection[str], devices: Collection[str]) -> None:
        self._interface_files.close()
        self._interfaces = {}
        sysfs_matches = same_namespace(self._source, devices)
        for name in names:
            self._note(name)
            self._interfaces[name] = _InterfaceCounters(
                self._source, name, self._interface_files, in_sysfs=sysfs_matches
            )

    def _follows(self, link: HostLink) -> bool:
        """Whether the link matches the names that were asked for, and is not left out."""
        left_out = not self._without.isdisjoint((link.name, *link.interfaces))
        return not left_out and (not self._names or matches(link, self._names))

    def _no_link_error(self) -> UsageError | NoMeasurement:
        if self._names:
            links = network_links(self._source, self._devices()) + gpu_links(self._source)[0]
            ports = ", ".join(link.name for link in links) or "none"
            return UsageError(
                f"--port {' --port '.join(self._names)}: no such port here",
                f"the ports are {ports}",
            )
        return NoMeasurement(
            "no link to watch: no RDMA port, no interface but loopback, and no GPU that NVML lists",
            "run it on the host itself, or give the container the host's network (--network=host)",
        )

    def close(self) -> None:
        for _, files in self._ports:
            files.close()
        if self._gpus:
            self._gpus.close()
        self._interface_files.close()
        self._host_files.close()


class _InterfaceCounters:
    """The counters of one interface: the kernel's, and its driver's where it counts the wire."""

    def __init__(self, source: Source, name: str, opened: ExitStack, *, in_sysfs: bool) -> None:
        self._source, self._name = source, name
        self._state = follow(source, f"{NET}/{name}/operstate", opened) if in_sysfs else None
        self._downs = follow(source, f"{NET}/{name}/{CARRIER}", opened) if in_sysfs else None
        self._live: ethtool.Statistics | None = None
        if isinstance(source, LiveMachine):
            with suppress(Unavailable):
                self._live = ethtool.Statistics(name)
                opened.callback(self._live.close)
                if ethtool_names().isdisjoint(self._live.names):
                    self._live = None

    def read(self, device: dict[str, int], at_s: float, index: int) -> dict[str, CounterGroup]:
        """The groups of counters by their source.

        `device` has the values of /proc/net/dev. `index` tells an interface from a later one of the
        same name.
        """
        values = dict(device)
        state = _operational(self._state)
        if state is not None:
            values["operational"] = state
        downs = number((self._downs() or b"").decode()) if self._downs else None
        if downs is not None:
            values[CARRIER] = downs
        groups = {"dev": CounterGroup(at_s, index, values)}
        driver_counters = self._driver_counters()
        if driver_counters:
            groups["ethtool"] = CounterGroup(time.monotonic(), index, driver_counters)
        return groups

    def _driver_counters(self) -> dict[str, int]:
        if isinstance(self._source, LiveMachine):
            try:
                counters = self._live.read() if self._live else {}
            except Unavailable:  # it is being removed: /proc/net/dev will lack it
                return {}
        else:
            recorded = ethtool.statistics(self._source, self._name)
            counters = {} if isinstance(recorded, str) else recorded
        return {name: counters[name] for name in ethtool_names() & counters.keys()}


class _Gpus:
    """NVLink and PCIe of the GPUs.

    Errors are read every `errors_every_s`; in between their group stays the same.
    """

    def __init__(self, source: Source, names: Collection[str], errors_every_s: float) -> None:
        self._errors_every_s = errors_every_s
        links, self.reason = gpu_links(source)
        self.links = [link for link in links if not names or matches(link, names)]
        self._nvml: GpuTraffic | None = None
        self._errors: dict[tuple[str, str], CounterGroup] = {}
        self._due_s = 0.0
        if self.links:
            try:
                self._nvml = GpuTraffic()
            except Unavailable as error:
                self.reason = str(error)

    def read(self) -> dict[tuple[str, str], CounterGroup]:
        if self._nvml is None:
            return {}
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s = now + self._errors_every_s
            self._errors = self._groups(self._nvml.errors(), "errors")
        return self._groups(self._nvml.traffic(), "traffic") | self._errors

    def states(self) -> tuple[GpuState, ...]:
        return self._nvml.states() if self._nvml else ()

    def _groups(
        self, read: dict[str, tuple[float, dict[str, int]]], kind: str
    ) -> dict[tuple[str, str], CounterGroup]:
        groups = {}
        for link in self.links:
            prefix = {NVLINK: "nvlink", PCIE: "pcie"}[link.kind]
            at_s, values = read.get(link.bus, (0.0, {}))
            of_link = {name: value for name, value in values.items() if name.startswith(prefix)}
            if of_link:
                groups[link.name, kind] = CounterGroup(at_s, 0, of_link)
        return groups

    def close(self) -> None:
        if self._nvml:
            self._nvml.close()


class _QueuePairs:
    """How many queue pairs the ports' devices have.

    The kernel counts them again for each answer, so it is asked once a second.
    """

    def __init__(self) -> None:
        self._due_s, self._counts, self._at_s = 0.0, dict[str, int](), 0.0

    def read(self, links: Iterable[HostLink]) -> dict[tuple[str, str], CounterGroup]:
        """A group for each port whose device is known."""
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s, self._at_s = now + QUEUE_PAIRS_EVERY_S, now
            try:
                self._counts = queue_pairs()
            except Unavailable:  # a kernel without RDMA, or an older one: it is not asked again
                self._due_s, self._counts = math.inf, {}
        return {
            (link.name, "resources"): CounterGroup(
                self._at_s, 0, {"num_of_qp": self._counts[link.device]}
            )
            for link in links
            if link.device in self._counts
        }


def _indices() -> dict[str, int]:
    """Index of every interface by name; the kernel gives a new interface a new one."""
    return {name: index for index, name in socket.if_nameindex()}


def _operational(file: Follow | None) -> int | None:
    """1 for an interface that is up, 0 for one that is down; None where operstate does not say."""
    return OPERATIONAL.get((file() or b"").strip()) if file else None
