"""What a watch of a host's links reads and reports: the links, a sample of their counters, and the
flow of each link over an interval.

Rates are per second. Values are in bytes and seconds. None is unknown, never 0.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from busbw.core.finding import Verdict
from busbw.core.shown import Shown

HOST = "host"  # the subject of CPU time and memory
# Of `busbw watch --listen`: BUSBW on the keys of a phone. It is below the range of ephemeral ports,
# and outside 9090 to 9999, which other exporters have:
# https://github.com/prometheus/prometheus/wiki/Default-port-allocations
METRICS_PORT = 28729
JOB_METRICS_PORT = METRICS_PORT + 1  # of `busbw watch job --listen`, on the same host

# Kinds of links. `rdma` is an RDMA device of another link layer.
IB, ROCE, RDMA, ETHERNET, NVLINK, PCIE = "ib", "roce", "rdma", "ethernet", "nvlink", "pcie"


class HostLink(msgspec.Struct, frozen=True):
    """What carries data: an RDMA port, an interface, all NVLinks of a GPU, or its PCIe slot."""

    name: str
    kind: str
    rate: float | None = None  # bytes per second in one direction
    interfaces: tuple[str, ...] = ()  # with the Ethernet counters of the port: the slaves of a bond
    bond: str = ""
    device: str = ""  # of an RDMA port: mlx5_0
    port: str = ""  # of an RDMA port: its number
    bus: str = ""  # of a GPU: 0000:1b:00.0


class CounterGroup(msgspec.Struct, frozen=True):
    """Counters that were read together at `at_s` of the monotonic clock.

    If `identity` changes, the device is another one, or was removed and came back.
    """

    at_s: float
    identity: int
    values: dict[str, int]


class GpuState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What slows a GPU, and who uses it."""

    bus: str
    index: int | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    reasons: int | None = None  # bits of core/clock_reasons.csv
    temperature_c: int | None = None
    power_w: int | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlinks: int = 0  # active
    used: int | None = None  # per cent of NVML's last sample period in which a kernel ran
    processes: dict[int, str] | None = None  # names by pid
    busy: dict[int, int] | None = None  # per cent of the GPU's time by pid, where it computed


class HostSample(msgspec.Struct, frozen=True):
    """One reading of a host.

    Groups are by subject (a link's or interface's name, core.telemetry.TCP, or HOST) and source. A
    group that was not read again is that of the previous sample: the kernel would have returned the
    same values.
    """

    at_s: float
    links: tuple[HostLink, ...]
    groups: dict[tuple[str, str], CounterGroup]
    unread: tuple[str, ...] = ()
    gpus: tuple[GpuState, ...] = ()


class SlaveFlow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One interface of a bond."""

    name: str
    tx: float | None = None
    rx: float | None = None
    counters: dict[str, float] = {}


class LinkFlow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a link carried over one interval. Pauses are shares of time."""

    name: str
    kind: str
    rate: float | None = None
    state: str = ""  # down, new, gone; '' is up or not known
    tx: float | None = None
    rx: float | None = None
    tx_pause: Annotated[
        float | None, Meta(description="how long this port kept the other end from sending")
    ] = None
    rx_pause: Annotated[
        float | None, Meta(description="how long the other end kept this port from sending")
    ] = None
    cnp_sent: float | None = None
    cnp_handled: float | None = None
    ecn_marked: float | None = None
    lost: float | None = None  # signs of lost and resent packets
    dropped: float | None = None
    bond: str = ""
    slaves: tuple[SlaveFlow, ...] = ()
    counters: Annotated[
        dict[str, float],
        Meta(description="increase of every other counter per second, and levels as they are"),
    ] = {}
    unknown: Annotated[
        dict[str, str], Meta(description="reason for each counter whose increase is unknown")
    ] = {}


class LinkFinding(msgspec.Struct, frozen=True):
    """What a pattern of counters indicates about a link, and the values seen."""

    link: str
    pattern: str
    verdict: Verdict
    message: str
    seen: str


class WatchInterval(
    Shown, msgspec.Struct, tag="busbw.watch/1", tag_field="schema", omit_defaults=True, kw_only=True
):
    """One interval of a watch."""

    host: str
    at: str  # ISO time of the reading
    seconds: float  # since the reading before
    missed: Annotated[
        int,
        Meta(description="intervals that were not sampled because an earlier one took too long"),
    ] = 0
    links: list[LinkFlow] = []
    tcp: dict[str, float] = {}
    cpu: float | None = None  # share of time in which the CPUs were busy
    free_memory_bytes: int | None = None
    findings: list[LinkFinding] = msgspec.field(default_factory=list, name="said")
    unread: list[str] = []

    def verdicts(self) -> list[Verdict]:
        """Those of the findings; without any pass, but unknown if there is no link."""
        found = [finding.verdict for finding in self.findings]
        return found or [Verdict.PASS if self.links else Verdict.UNKNOWN]


class SeenPattern(NamedTuple):
    """A pattern of a link's counters."""

    link: str
    pattern: str
    verdict: Verdict


class Exposition(msgspec.Struct, frozen=True, kw_only=True):
    """What an exporter shows, by subject and source, in the units of the counters."""

    links: tuple[HostLink, ...]
    # counters since the exporter's start, and levels as they are
    values: dict[tuple[str, str], dict[str, int]]
    findings: list[LinkFinding]
    seen: dict[SeenPattern, float]  # when each finding was last made
    samples: int
    missed: int
    unix_s: float


def per_second(rate: float) -> str:
    """`1,234`, and `0.2` for one event in five seconds."""
    return f"{rate:,.0f}" if rate >= 1 or not rate else f"{rate:.2g}"
