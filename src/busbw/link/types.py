"""Rates between hosts: what `busbw link` measured of each pair, and what follows from it.

Seconds, and bytes per second. Hosts and rails are indices into the report's lists.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.finding import RunFinding, Verdict
from busbw.core.shown import Tabular
from busbw.core.sizes import counted
from busbw.host.endpoints import Endpoint

TCP, PERFTEST = "tcp", "perftest"
METHODS = (TCP, PERFTEST)
CLEARLY = 0.9  # of an expected rate, or of the time: less is not just a little below it


def bits_text(rate: float) -> str:
    """`94.12 Gbit/s`, `96.1 Mbit/s`: bytes per second in the unit of line rates, four digits."""
    bits = rate * 8
    return f"{bits / 1e9:.4g} Gbit/s" if bits >= 0.9995e9 else f"{bits / 1e6:.4g} Mbit/s"


class LinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    method: str = TCP
    rails: Annotated[
        list[str],
        Meta(
            description="as on the command line; empty: the network that leads to the first other"
            " host"
        ),
    ] = []
    seconds: float = 2.0
    both: Annotated[bool, Meta(description="also measure both directions at the same time")] = False
    streams: Annotated[int, Meta(description="TCP connections, or queue pairs of perftest")] = 4
    rounds: Annotated[int, Meta(description="rounds of disjoint pairs; 0: all pairs")] = 0
    size: Annotated[int, Meta(description="message size of perftest in bytes")] = 1 << 20
    gpu: Annotated[
        int | None,
        Meta(description="perftest sends from the memory of this GPU; null: host memory"),
    ] = None
    gid_index: int | None = None
    line_rate: Annotated[
        float | None, Meta(description="bytes per second, where no driver reports it")
    ] = None
    limit_s: Annotated[
        float, Meta(description="seconds for each answer of a host, beyond the measured time")
    ] = 20.0


class PerftestProgram(msgspec.Struct, frozen=True):
    """A program of perftest on a host: its version as it prints it, and whether it can send from
    GPU memory.
    """

    version: str
    gpu: bool


class LinkHost(msgspec.Struct):
    """One host. `problem` says why it was not, or no longer, measured."""

    name: str
    hostname: str = ""
    busbw: str = ""
    perftest: PerftestProgram | None = None
    problem: str = ""


class Rail(msgspec.Struct, frozen=True):
    """The ports of all hosts on one network, or with one name; None for a host without such a
    port.
    """

    name: str
    endpoints: list[Endpoint | None]


class PairFlow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Data in one direction."""

    rail: int
    sender: int
    receiver: int
    together: Annotated[bool, Meta(description="the opposite direction ran too")] = False
    rate: Annotated[
        float | None,
        Meta(description="bytes of data per second at the receiver; null if it failed"),
    ] = None
    rates: Annotated[
        list[float],
        Meta(description="of every transfer, where it was repeated; `rate` is the highest"),
    ] = []
    cores: Annotated[
        tuple[float, float] | None,
        Meta(description="processor cores that sender and receiver used"),
    ] = None
    processor_bound: Annotated[
        bool,
        Meta(
            description="the threads of an end used all of its CPUs, or waited for them so long"
            " that data did not wait for the network"
        ),
    ] = False
    network_share: Annotated[
        float | None,
        Meta(
            description="share of the time in which the sender's data waited for the network alone,"
            " not for a thread of either end; null if the kernel does not count it"
        ),
    ] = None
    mtu: Annotated[int | None, Meta(description="as the test reported it")] = None
    moved: Annotated[
        dict[str, dict[str, dict[str, int]]],
        Meta(
            description="by how much the counters of loss, congestion and faults rose, by host,"
            ' port (or "tcp") and counter'
        ),
    ] = {}
    error: Annotated[str, Meta(description="why it failed")] = ""

    @property
    def waited_for_cpus(self) -> bool:
        """Whether the CPUs limited the rate, so that the link may be faster."""
        return self.processor_bound and (self.network_share or 0.0) < CLEARLY

    def cpus_explain(self, expected: float) -> bool:
        """Whether the CPUs can be why the rate is below `expected`.

        They cannot, if the link is clearly slower even while nothing but the network is waited for.
        """
        if not self.processor_bound or self.network_share is None:
            return self.processor_bound
        return (self.rate or 0.0) >= CLEARLY * expected * self.network_share

    @property
    def retransmissions(self) -> int:
        """TCP segments that either host sent again during the transfer."""
        return sum(ports.get("tcp", {}).get("RetransSegs", 0) for ports in self.moved.values())


class Latency(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Round trips of small messages in one pair for TCP; for perftest what ib_write_lat prints,
    which is half of a round trip.
    """

    rail: int
    a: int
    b: int
    median_s: float | None = None
    p99_s: float | None = None
    count: int = 0
    error: str = ""


class LinkReport(Tabular, msgspec.Struct, tag="busbw.link/1", tag_field="schema", kw_only=True):
    """All that was measured, in the order of measurement."""

    spec: LinkSpec
    busbw: str = ""
    argv: list[str] = []
    start: str = ""
    end: str = ""
    complete: Annotated[bool, Meta(description="false if the tournament was interrupted")] = False
    hosts: list[LinkHost] = []
    rails: list[Rail] = []
    flows: list[PairFlow] = []
    latencies: list[Latency] = []
    findings: list[RunFinding] = []

    def __post_init__(self) -> None:
        """ValueError, so a DecodeError of a file, for an index of no host or rail of the report."""
        hosts, rails = range(len(self.hosts)), range(len(self.rails))
        for rail in self.rails:
            if len(rail.endpoints) != len(hosts):
                raise ValueError(
                    f"rail {rail.name} has {len(rail.endpoints)} endpoints, but there are"
                    f" {counted(len(hosts), 'host')}"
                )
        indices = [("flow", flow.rail, flow.sender, flow.receiver) for flow in self.flows]
        indices += [("latency", latency.rail, latency.a, latency.b) for latency in self.latencies]
        for kind, at, a, b in indices:
            if at not in rails or a not in hosts or b not in hosts:
                available = f"{counted(len(rails), 'rail')} and {counted(len(hosts), 'host')}"
                raise ValueError(
                    f"a {kind} is on rail {at} between hosts {a} and {b}, but there are {available}"
                )

    def verdicts(self) -> list[Verdict]:
        """Those of the findings; unknown if they say of no link that it is right or wrong."""
        found = [finding.verdict for finding in self.findings]
        judged = {Verdict.PASS, Verdict.WARN, Verdict.FAIL} & set(found)
        return found if judged else [Verdict.UNKNOWN]

    def measured(self) -> list[PairFlow]:
        return [flow for flow in self.flows if flow.rate is not None]


class HostsRun(msgspec.Struct, frozen=True):
    """A collective over some hosts: its busbw in bytes per second, None if it failed."""

    hosts: list[str]
    rate: float | None
    error: str = ""


class Suspect(msgspec.Struct, frozen=True):
    """One host, or two that are slow only together.

    `share` is its rate as a share of the usual one; None if the runs failed.
    """

    hosts: list[str]
    share: float | None


class SuspectReport(
    Tabular, msgspec.Struct, tag="busbw.suspect/1", tag_field="schema", kw_only=True
):
    """A search for slow hosts by runs of a collective."""

    way: Annotated[str, Meta(description="hosts: groups are halved; pairs: every two hosts")]
    collective: str
    size_bytes: int
    hosts: list[str]
    busbw: str = ""
    argv: list[str] = []
    start: str = ""
    end: str = ""
    usual: float | None = None
    runs: list[HostsRun] = []
    suspects: list[Suspect] = []
    doubts: Annotated[list[str], Meta(description="what the runs left open, and why")] = []
    spread: Annotated[
        float | None,
        Meta(description="typical relative difference between two runs over the same hosts"),
    ] = None
    complete: bool = False

    def verdicts(self) -> list[Verdict]:
        """Fail with a suspect, unknown if the runs differ too much to clear all hosts."""
        found = [Verdict.FAIL] * len(self.suspects) + [Verdict.UNKNOWN] * len(self.doubts)
        return found or [Verdict.PASS]
