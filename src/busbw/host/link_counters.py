"""Repeated readings of all links of a host.

Descriptors stay open; ports that disappear are left out until they are back.

traffic = Traffic(Live())      finds the links and opens their counters
sample = traffic.read()        as often as wanted
traffic.close()
"""

import itertools
import math
import socket
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress

from busbw.core.counters import Owner, at
from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.link_samples import HOST, NVLINK, PCIE, Group, Link, Sample
from busbw.core.telemetry import TCP
from busbw.core.watch_counters import BY_ETHTOOL
from busbw.host import ethtool
from busbw.host.counters import Follow, device_counters, follow, snmp
from busbw.host.cpu_mem import System
from busbw.host.interfaces import NET, number
from busbw.host.links import GpuTraffic, gpu_links, matches, network_links, same_namespace
from busbw.host.nic import RDMA
from busbw.host.rdma_ports import PortFiles, queue_pairs
from busbw.host.source import Live, Source, Unavailable

QUEUE_PAIRS_EVERY_S = 1.0
ERRORS_EVERY_S = 5.0  # error counters of GPUs: NVML takes milliseconds for them
NVML, HOST_FILES = "NVML", "/proc and /sys"  # what is read besides links
CARRIER = "carrier_down_count"
# others, such as `unknown` of a tunnel, say nothing
OPERATIONAL = {b"up": 1, b"down": 0, b"lowerlayerdown": 0}
SEGMENTS = frozenset({"OutSegs", *(row.name for row in at(Owner.TCP))})


class Traffic:
    """Reads the links of a host that match `wanted`, all by default; with `gpus` those of GPUs too,
    with `system` also CPUs, memory and queue pairs.

    Errors of GPUs are read anew after `errors_every_s`. `note` is called with the name of a link,
    or NVML, before it is read, so that another process can see which of them hangs. Links named in
    `without` are left out.

    UsageError if none matches, NoMeasurement if the host has none.
    """

    def __init__(
        self,
        source: Source | None = None,
        wanted: Collection[str] = (),
        *,
        gpus: bool = True,
        system: bool = False,
        errors_every_s: float = ERRORS_EVERY_S,
        without: Collection[str] = (),
        note: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._source, self._wanted = source or Live(), tuple(wanted)
        self._without, self._note = frozenset(without), note
        self._opened, self._always = ExitStack(), ExitStack()
        self._identities = itertools.count(1)
        self._names: object = None
        self._ports: list[tuple[Link, PortFiles]] = []
        self._interfaces: dict[str, _Interface] = {}
        self._dev = follow(self._source, "/proc/net/dev", self._always)
        self._tcp = [
            file
            for name in ("snmp", "netstat")
            if (file := follow(self._source, f"/proc/net/{name}", self._always))
        ]
        note(NVML)
        self._gpus = _Gpus(self._source, self._wanted, errors_every_s) if gpus else None
        self._system = System(self._source, self._always) if system else None
        self._queue_pairs = _QueuePairs()
        self._links: tuple[Link, ...] = ()
        self._unread: list[str] = []
        self._find(self._devices())
        if not self._links:
            error = self._nothing()
            self.close()
            raise error

    def read(self) -> Sample:
        """All counters as they are now."""
        at_s, devices = time.monotonic(), self._devices()
        if self._named(devices) != self._names or any(files.lost for _, files in self._ports):
            self._find(devices)
        groups: dict[tuple[str, str], Group] = {}
        for link, files in self._ports:
            self._note(link.name)
            groups |= {(link.name, kind): group for kind, group in files.read().items()}
        index = _indices()
        for name, interface in self._interfaces.items():
            if name in devices:
                self._note(name)
                groups |= {
                    (name, kind): group
                    for kind, group in interface.read(
                        devices[name], at_s, index.get(name, 0)
                    ).items()
                }
        self._note(HOST_FILES)
        groups[TCP, "snmp"] = Group(time.monotonic(), 0, self._segments())
        if self._system:
            groups[HOST, "system"] = self._system.read()
            groups |= self._queue_pairs.read(link for link, _ in self._ports)
        if self._gpus:
            self._note(NVML)
            groups |= self._gpus.read()
        return Sample(at_s, self._links, groups, tuple(self._unread))

    def _devices(self) -> dict[str, dict[str, int]]:
        return device_counters(self._dev() or b"") if self._dev else {}

    def _segments(self) -> dict[str, int]:
        values: dict[str, int] = {}
        for file in self._tcp:
            values |= snmp(file() or b"")
        return {name: value for name, value in values.items() if name in SEGMENTS}

    def _named(self, devices: Collection[str]) -> object:
        """What is here: if it changes, links are looked for again."""
        return frozenset(devices), self._source.names(RDMA)

    def _find(self, devices: dict[str, dict[str, int]]) -> None:
        """Find the links and open what is new.

        A port that is still here keeps its identity: its counters go on.
        """
        self._note(HOST_FILES)
        self._names = self._named(devices)
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
        self._open_interfaces(
            dict.fromkeys(name for link in links for name in link.interfaces), devices
        )
        self._links = (*links, *(self._gpus.links if self._gpus else ()))
        self._unread = [
            reason for link, files in self._ports if (reason := files.reason(link.name))
        ]
        self._unread += [self._gpus.reason] if self._gpus and self._gpus.reason else []

    def _open_interfaces(self, names: Collection[str], devices: Collection[str]) -> None:
        self._opened.close()
        self._interfaces = {}
        shown = same_namespace(self._source, devices)
        for name in names:
            self._note(name)
            self._interfaces[name] = _Interface(self._source, name, self._opened, shown=shown)

    def _follows(self, link: Link) -> bool:
        """Whether it was asked for, and answers."""
        hangs = not self._without.isdisjoint((link.name, *link.interfaces))
        return not hangs and (not self._wanted or matches(link, self._wanted))

    def _nothing(self) -> UsageError | NoMeasurement:
        if self._wanted:
            here = [link.name for link in network_links(self._source, self._devices())] + [
                link.name for link in gpu_links(self._source)[0]
            ]
            listed = ", ".join(here) or "none"
            return UsageError(
                f"--port {' --port '.join(self._wanted)}: no such port here",
                f"the ports are {listed}",
            )
        message = (
            "no link to watch: no RDMA port, no interface but loopback, and no GPU that NVML lists"
        )
        return NoMeasurement(
            message,
            "run it on the host itself, or give the container the host's network (--network=host)",
        )

    def close(self) -> None:
        """Close every descriptor, and NVML."""
        for _, files in self._ports:
            files.close()
        if self._gpus:
            self._gpus.close()
        self._opened.close()
        self._always.close()


class _Interface:
    """The counters of one interface: of the kernel, and of its driver where that has counters of
    the wire.
    """

    def __init__(self, source: Source, name: str, opened: ExitStack, *, shown: bool) -> None:
        self._source, self._name = source, name
        self._state = follow(source, f"{NET}/{name}/operstate", opened) if shown else None
        self._downs = follow(source, f"{NET}/{name}/{CARRIER}", opened) if shown else None
        self._live: ethtool.Statistics | None = None
        if isinstance(source, Live):
            with suppress(Unavailable):
                self._live = ethtool.Statistics(name)
                opened.callback(self._live.close)
                if BY_ETHTOOL.isdisjoint(self._live.names):
                    self._live = None

    def read(self, device: dict[str, int], at_s: float, index: int) -> dict[str, Group]:
        """By source.

        `device` are the values of /proc/net/dev, `index` tells an interface from a later one of the
        same name.
        """
        state, downs = (
            _operational(self._state),
            (number((self._downs() or b"").decode()) if self._downs else None),
        )
        more = {
            name: value
            for name, value in (("operational", state), (CARRIER, downs))
            if value is not None
        }
        groups = {"dev": Group(at_s, index, device | more)}
        driver = self._driver()
        if driver:
            groups["ethtool"] = Group(time.monotonic(), index, driver)
        return groups

    def _driver(self) -> dict[str, int]:
        if isinstance(self._source, Live):
            try:
                found = self._live.read() if self._live else {}
            except Unavailable:  # it is being removed: /proc/net/dev will lack it
                return {}
        else:
            said = ethtool.statistics(self._source, self._name)
            found = {} if isinstance(said, str) else said
        return {name: found[name] for name in BY_ETHTOOL & found.keys()}


class _Gpus:
    """NVLink and PCIe of the GPUs.

    Errors are read seldom; in between their group stays the same.
    """

    def __init__(self, source: Source, wanted: Collection[str], errors_every_s: float) -> None:
        self._errors_every_s = errors_every_s
        self.links, self.reason = gpu_links(source)
        self.links = [link for link in self.links if not wanted or matches(link, wanted)]
        self._nvml: GpuTraffic | None = None
        self._errors: dict[tuple[str, str], Group] = {}
        self._due_s = 0.0
        if self.links:
            try:
                self._nvml = GpuTraffic()
            except Unavailable as error:
                self.reason = str(error)

    def read(self) -> dict[tuple[str, str], Group]:
        """Groups of every link, traffic and errors."""
        if self._nvml is None:
            return {}
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s = now + self._errors_every_s
            self._errors = self._groups(self._nvml.errors(), "errors")
        return self._groups(self._nvml.traffic(), "traffic") | self._errors

    def _groups(
        self, read: dict[str, tuple[float, dict[str, int]]], kind: str
    ) -> dict[tuple[str, str], Group]:
        groups = {}
        for link in self.links:
            prefix = {NVLINK: "nvlink", PCIE: "pcie"}[link.kind]
            at_s, values = read.get(link.bus, (0.0, {}))
            own = {name: value for name, value in values.items() if name.startswith(prefix)}
            if own:
                groups[link.name, kind] = Group(at_s, 0, own)
        return groups

    def close(self) -> None:
        """Release NVML."""
        if self._nvml:
            self._nvml.close()


class _QueuePairs:
    """How many queue pairs the ports' devices have.

    The kernel counts them anew for each answer, so it is asked once a second.
    """

    def __init__(self) -> None:
        self._due_s, self._counts, self._at_s = 0.0, dict[str, int](), 0.0

    def read(self, links: Iterable[Link]) -> dict[tuple[str, str], Group]:
        """A group for each port whose device is known."""
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s, self._at_s = now + QUEUE_PAIRS_EVERY_S, now
            try:
                self._counts = queue_pairs()
            except Unavailable:  # a kernel without RDMA, or an older one: it is not asked again
                self._due_s, self._counts = math.inf, {}
        return {
            (link.name, "resources"): Group(self._at_s, 0, {"num_of_qp": self._counts[link.device]})
            for link in links
            if link.device in self._counts
        }


def _indices() -> dict[str, int]:
    """Index of every interface by name; the kernel gives a new interface a new one."""
    return {name: index for index, name in socket.if_nameindex()}


def _operational(file: Follow | None) -> int | None:
    """1 for an interface that is up, 0 for one that is down; None where operstate does not say."""
    return OPERATIONAL.get((file() or b"").strip()) if file else None
