"""A running job as seen from outside: what NCCL's RAS, Flight Recorder dumps and its hosts say.

The conclusion is a report, as JSON or as text: one line, then the evidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.finding import Verdict
from busbw.core.link_samples import WatchInterval
from busbw.core.shown import Shown
from busbw.host.gpu import GpuUse
from busbw.pattern.pending_collective import Outstanding
from busbw.ui.columns import wrapped


class RankStatus(msgspec.Struct, kw_only=True):
    """One rank of a communicator."""

    rank: int
    host: str = ""  # the address that NCCL uses for its own connections
    pid: int = -1
    gpu: int = -1
    nvml: int = -1
    counts: Annotated[
        dict[str, int], Meta(description="collectives that it launched, by function")
    ] = {}
    problem: Annotated[str, Meta(description="what NCCL says is wrong with it")] = ""

    @property
    def process(self) -> tuple[str, int, int]:
        """The same GPU of the same process in other communicators."""
        return self.host, self.pid, self.gpu


class CommStatus(msgspec.Struct, kw_only=True):
    """One communicator.

    `most` are the largest counts by function; text lists only ranks that differ from the others.
    """

    name: str
    size: int = 0
    ranks: list[RankStatus] = []
    most: dict[str, int] = {}

    def behind(self) -> dict[str, list[RankStatus]]:
        """By function, the ranks that launched fewer than others."""
        late: dict[str, list[RankStatus]] = {}
        for function, largest in self.most.items():
            for rank in self.ranks:
                if rank.counts.get(function, largest) < largest:
                    late.setdefault(function, []).append(rank)
        return late


class RasReport(msgspec.Struct, kw_only=True):
    """One report of NCCL's RAS. Only JSON has the counts of all ranks."""

    nccl: str = ""
    complete: bool = False
    comms: list[CommStatus] = []

    def processes(self) -> list[RankStatus]:
        return list({rank.process: rank for comm in self.comms for rank in comm.ranks}.values())


class HostRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a host is asked.

    Without `seconds` it reads no counters. `ras` is the HOST:PORT of its RAS service, None if that
    is not asked.
    """

    seconds: float = 0.0
    ras: str | None = None
    pids: list[int] = []


class JobHostStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one host says."""

    node: str = ""
    addresses: list[str] = []
    ras: str = ""
    no_ras: str = ""
    states: dict[int, str] = {}  # letters of proc(5) by pid; '' for a process that does not exist
    gpus: list[GpuUse] = []
    watched: WatchInterval | None = None
    unread: list[str] = []


LOCAL = "localhost"


@dataclass(slots=True)
class JobData:
    """All that was read of a job."""

    seconds: float  # between the two RAS reports
    before: RasReport
    after: RasReport
    outstanding: Sequence[Outstanding] = ()
    hosts: dict[str, JobHostStatus] = field(default_factory=dict)
    # hosts that did not answer, with the reason
    silent: dict[str, str] = field(default_factory=dict)
    no_ras: str = ""  # why RAS has no report
    unread: list[str] = field(default_factory=list)

    def host(self, address: str) -> str:
        """The name under which a host was queried, by NCCL's address; the address if unknown."""
        for name, host in self.hosts.items():
            if address == name or address in host.addresses:
                return name
        return address

    def state(self, rank: RankStatus) -> str:
        """The state letter of its process; 'R' if its host did not report it."""
        host = self.hosts.get(self.host(rank.host))
        return host.states.get(rank.pid, "R") if host else "R"

    def gpus(self) -> list[GpuUse]:
        return [gpu for host in self.hosts.values() for gpu in host.gpus]

    def is_elsewhere(self) -> bool:
        """Whether nothing says that the job ran on this host, which alone was looked at: its dumps
        may be from another machine.
        """
        return not self.after.comms and list(self.hosts) == [LOCAL]

    def has_moved(self) -> bool | None:
        """Whether any rank launched a collective between the reports; None if unknown."""
        before, after = _counts_by_rank(self.before), _counts_by_rank(self.after)
        if before != after:
            return True if self.before.nccl and self.after.nccl else None
        return False if after else None


def _counts_by_rank(report: RasReport) -> dict[tuple[str, int], dict[str, int]]:
    """The counts of collectives, by communicator and rank."""
    return {
        (comm.name, rank.rank): rank.counts
        for comm in report.comms
        for rank in comm.ranks
        if rank.counts
    }


class JobReport(Shown, msgspec.Struct, tag="busbw.job/1", tag_field="schema", kw_only=True):
    """The conclusion in one line, and what it was drawn from."""

    at: str
    seconds: float  # between the two reports of RAS
    verdict: Verdict = Verdict.UNKNOWN
    message: str = ""
    evidence: list[str] = []
    fix: str = ""
    ras: RasReport | None = None
    outstanding: list[Outstanding] = []
    hosts: dict[str, JobHostStatus] = {}  # by the name under which each was asked
    silent: dict[str, str] = {}  # hosts that did not answer, with the reason


def text(report: JobReport, width: int | None = None) -> str:
    """The line, the evidence and the fix."""
    lines = [f"{report.verdict.name:7} {report.message}"]
    lines += [f"        seen: {evidence}" for evidence in report.evidence]
    if report.fix:
        lines.append(f"        fix: {report.fix}")
    return wrapped("".join(f"{line}\n" for line in lines), width)
