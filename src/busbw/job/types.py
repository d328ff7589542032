"""A running job as seen from outside: what NCCL's RAS, Flight Recorder dumps and its hosts say,
and the conclusion.

A running job: the conclusion in one line, then the evidence.
"""

import msgspec

from busbw.core.finding import Verdict
from busbw.core.link_samples import Watched
from busbw.host.gpu import GpuUse
from busbw.pattern.pending_collective import Outstanding
from busbw.ui.number_formats import wrapped


class RankSeen(msgspec.Struct, kw_only=True):
    """One rank of a communicator.

    `counts` are the collectives it launched, by function; `problem` what NCCL says is wrong with
    it.
    """

    rank: int
    host: str = ""  # the address that NCCL uses for its own connections
    pid: int = -1
    gpu: int = -1
    nvml: int = -1
    counts: dict[str, int] = {}
    problem: str = ""

    @property
    def process(self) -> tuple[str, int, int]:
        """The same GPU of the same process in other communicators."""
        return self.host, self.pid, self.gpu


class CommSeen(msgspec.Struct, kw_only=True):
    """One communicator.

    `most` are the largest counts by function; text lists only ranks that differ from the others.
    """

    name: str
    size: int = 0
    ranks: list[RankSeen] = []
    most: dict[str, int] = {}

    def behind(self) -> dict[str, list[RankSeen]]:
        """By function, the ranks that launched fewer than others."""
        found = {
            name: [rank for rank in self.ranks if rank.counts.get(name, most) < most]
            for name, most in self.most.items()
        }
        return {name: ranks for name, ranks in found.items() if ranks}


class RasSeen(msgspec.Struct, kw_only=True):
    """One report of NCCL's RAS. Only JSON has the counts of all ranks."""

    nccl: str = ""
    complete: bool = False
    comms: list[CommSeen] = []

    def processes(self) -> list[RankSeen]:
        """Each process once."""
        return list({rank.process: rank for comm in self.comms for rank in comm.ranks}.values())


class Ask(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a host is asked.

    Without `seconds` it reads no counters; `ras` is its service's HOST:PORT, None if it is not
    asked.
    """

    seconds: float = 0.0
    ras: str | None = None
    pids: list[int] = []


class HostSeen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one host says.

    `states` are letters of proc(5) by pid, '' for a process that does not exist.
    """

    node: str = ""
    addresses: list[str] = []
    ras: str = ""
    no_ras: str = ""
    states: dict[int, str] = {}
    gpus: list[GpuUse] = []
    watched: Watched | None = None
    unread: list[str] = []


class JobReport(msgspec.Struct, tag="busbw.job/1", tag_field="schema", kw_only=True):
    """The conclusion in one line, and what it was drawn from.

    `hosts` are by the names they were asked under.
    """

    at: str
    seconds: float  # between the two looks at the job
    verdict: Verdict = Verdict.UNKNOWN
    message: str = ""
    evidence: list[str] = []
    fix: str = ""
    ras: RasSeen | None = None
    outstanding: list[Outstanding] = []
    hosts: dict[str, HostSeen] = {}
    silent: dict[str, str] = {}  # hosts that did not answer, with the reason


def text(report: JobReport, width: int | None = None) -> str:
    """The line, the evidence and the fix."""
    lines = [
        f"{report.verdict.name:7} {report.message}",
        *(f"        seen: {one}" for one in report.evidence),
    ]
    lines += [f"        fix: {report.fix}"] if report.fix else []
    return wrapped("".join(f"{line}\n" for line in lines), width)
