"""The GPUs and ports of this host while a job is watched, as `busbw watch` reads them.

A thread reads them every EVERY_S, so that a driver that hangs delays no verdict. Without GPUs and
ports it ends.
"""

import contextlib
import platform
import threading
import weakref
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from busbw.core.errors import BusbwError
from busbw.core.link_samples import NVLINK, PCIE, GpuState, HostSample, WatchInterval
from busbw.core.telemetry import clock_reasons
from busbw.host import process
from busbw.host.busy_processes import BusyProcess
from busbw.job.live.connections import PathEvidence
from busbw.job.live.rank_use import FORGOTTEN_S, WINDOW_S
from busbw.watch.reader import LinkSelection, SampleReader
from busbw.watch.watcher import Watcher

EVERY_S = 3.0
MEANS_S = 10.0  # of which means are: what ended before is not shown for long
RESENT, USED = "RetransSegs", "used"
ONE_WAY = 1.2  # times the bytes of the other direction
NVIDIA_DEVICES = "/dev/nvidia"
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")  # without it no GPU is missed
LEAST_BUSY = 5  # per cent of a GPU's time
MPS_SERVER = "nvidia-cuda-mps"  # computes for its clients, which the ranks may be
LOCAL_RANK, VISIBLE = b"LOCAL_RANK=", b"CUDA_VISIBLE_DEVICES="


@dataclass(slots=True)
class GpuEvidence:
    """A GPU over the last MEANS_S; `before_mhz` is the mean of the time before WINDOW_S."""

    last: GpuState
    sm_mhz: float | None = None
    before_mhz: float | None = None
    reasons: dict[str, float] = field(default_factory=dict)  # share of the readings, by name
    strangers: dict[int, str] = field(default_factory=dict)  # what is said of them, by pid
    used: float | None = None  # share of the time in which a kernel ran


@dataclass(slots=True)
class PortEvidence:
    """What a port carried in its busier direction, in bytes per second, and its findings."""

    name: str
    rate: float | None  # of the line
    before_rate: float | None  # when it was first seen
    carried: float
    before: float | None
    findings: list[str] = field(default_factory=list)
    host: str = ""
    sends: bool | None = None  # more than it receives; None if about as much


@dataclass(slots=True)
class HostEvidence:
    """All GPUs, ports and paths; resent segments of TCP are per second."""

    gpus: dict[str, GpuEvidence] = field(default_factory=dict)  # by bus
    ports: list[PortEvidence] = field(default_factory=list)
    gpu_links: dict[str, list[str]] = field(default_factory=dict)  # findings by bus
    resent: float = 0.0
    before_resent: float | None = None
    unread: Sequence[str] = ()  # why GPUs of this host, or ports, are not read
    paths: list[PathEvidence] = field(default_factory=list)  # of TCP, from its ranks to other hosts
    busy: Sequence[BusyProcess] | None = None  # of no rank; None if they are not known yet
    turn: int | None = None  # in which paths were read; None for several


class HostSamples:
    """The samples of a host, the last ones and a mean of those before."""

    def __init__(self) -> None:
        self._watcher: Watcher | None = None
        self._buses: dict[str, str] = {}  # of links of GPUs, by name
        self._rates: dict[str, float | None] = {}
        self._recent: deque[tuple[HostSample, WatchInterval]] = deque()
        self._before: dict[str, float] = {}

    def take(self, sample: HostSample) -> None:
        if self._watcher is None:
            self._watcher = Watcher(platform.node(), sample)
            return
        for link in sample.links:
            self._rates.setdefault(link.name, link.rate)
            self._buses[link.name] = link.bus
        self._recent.append((sample, self._watcher.take(sample)))
        while sample.at_s - self._recent[0][0].at_s > WINDOW_S:
            oldest = _levels(*self._recent.popleft())
            share = EVERY_S / FORGOTTEN_S
            for name, value in oldest.items():
                before = self._before.get(name, value)
                self._before[name] = before + share * (value - before)

    def evidence(self) -> HostEvidence:
        found = HostEvidence()
        if not self._recent:
            return found
        last_s = self._recent[-1][0].at_s
        levels = [_levels(*one) for one in self._recent if one[0].at_s > last_s - MEANS_S]
        means = {
            name: fmean([level[name] for level in levels if name in level]) for name in levels[-1]
        }
        sample, interval = self._recent[-1]
        for gpu in sample.gpus:
            used = means.get(f"{gpu.bus} {USED}")
            found.gpus[gpu.bus] = GpuEvidence(
                gpu,
                sm_mhz=means.get(gpu.bus),
                used=None if used is None else used / 100,
                before_mhz=self._before.get(gpu.bus),
                reasons=self._reasons(gpu.bus),
            )
        findings = self._findings()
        for flow in interval.links:
            said = findings.get(flow.name, [])
            if flow.kind in (NVLINK, PCIE):
                found.gpu_links.setdefault(self._buses[flow.name], []).extend(said)
            elif flow.name in means:
                before_rate, before = self._rates.get(flow.name), self._before.get(flow.name)
                port = PortEvidence(
                    flow.name, flow.rate, before_rate, means[flow.name], before, said
                )
                port.host, port.sends = platform.node(), self._sends(flow.name)
                found.ports.append(port)
        found.unread = sample.unread if NVIDIA_DRIVER.exists() else ()
        found.resent = means.get(RESENT, 0.0)
        found.before_resent = self._before.get(RESENT)
        return found

    def _sends(self, name: str) -> bool | None:
        """Whether a port sends more than it receives."""
        flows = [flow for _, one in self._recent for flow in one.links if flow.name == name]
        sent = sum(flow.tx or 0.0 for flow in flows)
        received = sum(flow.rx or 0.0 for flow in flows)
        if max(sent, received) < ONE_WAY * min(sent, received):
            return None
        return sent > received

    def _findings(self) -> dict[str, list[str]]:
        """What the counters of links meant, by link; the last of each pattern."""
        found: dict[str, dict[str, str]] = {}
        for _, interval in self._recent:
            for one in interval.findings:
                found.setdefault(one.link, {})[one.pattern] = f"{one.message} ({one.seen})"
        return {link: list(patterns.values()) for link, patterns in found.items()}

    def _reasons(self, bus: str) -> dict[str, float]:
        counts: Counter[str] = Counter()
        for sample, _ in self._recent:
            for gpu in sample.gpus:
                if gpu.bus == bus:
                    counts.update(clock_reasons(gpu.reasons or 0))
        return {name: count / len(self._recent) for name, count in counts.items()}


def _levels(sample: HostSample, interval: WatchInterval) -> dict[str, float]:
    """Clocks and use by bus, what ports carried by name, and resent segments."""
    levels = {gpu.bus: float(gpu.sm_mhz) for gpu in sample.gpus if gpu.sm_mhz is not None}
    for gpu in sample.gpus:
        if gpu.used is not None:
            levels[f"{gpu.bus} {USED}"] = float(gpu.used)
    for flow in interval.links:
        known = [value for value in (flow.tx, flow.rx) if value is not None]
        if known:
            levels[flow.name] = max(known)
    return levels | {RESENT: interval.tcp.get(RESENT, 0.0)}


def of_host(host: str, name: str) -> str:
    """The name of a part of a host among those of several; '' stays so."""
    return f"{host} {name}" if host and name else name


def joined(hosts: Mapping[str, HostEvidence]) -> HostEvidence:
    """What several hosts show, by host: parts are named with their host."""
    found = HostEvidence()
    turns = {one.turn for one in hosts.values()}
    found.turn = turns.pop() if len(turns) == 1 else None
    for host, one in hosts.items():
        found.gpus |= {of_host(host, bus): gpu for bus, gpu in one.gpus.items()}
        found.gpu_links |= {of_host(host, bus): said for bus, said in one.gpu_links.items()}
        found.ports += [replace(port, name=of_host(host, port.name)) for port in one.ports]
        found.paths += one.paths
        if one.busy is not None:
            found.busy = [*(found.busy or ()), *one.busy]
        found.unread = [*found.unread, *(of_host(host, reason) for reason in one.unread)]
        if one.resent >= found.resent:
            found.resent, found.before_resent = one.resent, one.before_resent
    return found


class HostReader:
    """Reads the host as long as it is referred to, from the first `evidence` on."""

    def __init__(self) -> None:
        self._shared: _Shared | None = None

    def evidence(self) -> HostEvidence:
        if self._shared is None:
            self._shared = shared = _Shared()
            weakref.finalize(self, shared.ended.set)
            threading.Thread(target=shared.keep_reading, daemon=True).start()
        with self._shared.lock:
            return self._shared.samples.evidence()


class _Shared:
    """What a reader has in common with its thread."""

    def __init__(self) -> None:
        self.samples, self.lock, self.ended = HostSamples(), threading.Lock(), threading.Event()

    def keep_reading(self) -> None:
        # Nothing to watch, or nothing that answers: the job is watched without.
        with (
            contextlib.suppress(BusbwError),
            contextlib.closing(SampleReader(LinkSelection(states=True))) as reader,
        ):
            while True:
                sample = reader.read()
                with self.lock:
                    self.samples.take(sample)
                if self.ended.wait(EVERY_S):
                    break


def gpus_of(host: HostEvidence, pids: Mapping[int, int]) -> dict[int, str]:
    """By rank the bus of the GPU that its process computes on; by NVML, else by LOCAL_RANK."""
    found: dict[int, str] = {}
    for rank, pid in pids.items() if host.gpus else ():
        used = [bus for bus, gpu in host.gpus.items() if pid in (gpu.last.processes or {})]
        bus = used[0] if len(used) == 1 else _by_local_rank(host, pid)
        if bus:
            found[rank] = bus
    return found


def _by_local_rank(host: HostEvidence, pid: int) -> str:
    try:
        variables = process.read_memory_file(pid, "environ").split(b"\0")
    except OSError:
        return ""
    values = {
        name: word.removeprefix(name)
        for name in (LOCAL_RANK, VISIBLE)
        for word in variables
        if word.startswith(name)
    }
    place = values.get(LOCAL_RANK, b"")
    if not place.isdigit() or not process.has_open(pid, NVIDIA_DEVICES):
        return ""  # ranks on CPUs have the variable too
    visible = [word for word in values.get(VISIBLE, b"").split(b",") if word]
    if visible:
        place = visible[int(place)] if int(place) < len(visible) else b""
    buses = [bus for bus, gpu in host.gpus.items() if place == str(gpu.last.index).encode()]
    return buses[0] if buses else ""


def strangers(gpu: GpuState, pids: Mapping[int, int]) -> dict[int, str]:
    """By pid, what is said of the processes of no rank that compute on a GPU.

    {} unless a rank of the job is among its processes: NVML may give pids of another namespace.
    """
    ranks = set(pids.values())
    if ranks.isdisjoint(gpu.processes or {}):
        return {}
    found = {}
    for pid, name in (gpu.processes or {}).items():
        busy = None if gpu.busy is None else gpu.busy.get(pid, 0)
        is_idle = busy is not None and busy < LEAST_BUSY
        if pid in ranks or is_idle or name.startswith(MPS_SERVER) or process.is_below(pid, ranks):
            continue
        how = "which has memory on it" if busy is None else f"which takes {busy} % of its time"
        found[pid] = f"process {pid} ({name or 'of another namespace'}), {how}"
    return found
