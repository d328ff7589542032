"""What is seen of a running job: its ranks and steps at one moment, and what follows from that."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.finding import Verdict
from busbw.core.lateness import Lateness
from busbw.core.pattern import US
from busbw.pattern.pending_collective import Outstanding


class LiveRank(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One rank. Times are in seconds."""

    rank: int
    host: str
    pid: int
    state: Annotated[
        str | None, Meta(description="letter of proc(5), empty without a process; null if unknown")
    ] = None
    stopped_s: Annotated[float, Meta(description="since it was seen stopped")] = 0.0
    ended: Annotated[bool, Meta(description="its Python came to its end")] = False
    end_s: Annotated[
        float | None, Meta(description="when its process ended; only differences have a meaning")
    ] = None
    steps: int = 0
    still_s: Annotated[
        float, Meta(description="since a step or a call was seen to begin or end")
    ] = 0.0
    unwritten_s: Annotated[float, Meta(description="since its files were seen to change")] = 0.0
    call: Annotated[str, Meta(description="the oldest call that it is in")] = ""


@dataclass(slots=True)
class StepTimes:
    """Of the last steps that all ranks have: medians of the last 10 s, of the last 30 s, and of
    those before, None for too few; and the longest that was read.
    """

    now_us: float
    window_us: float
    usual_us: float | None
    longest_us: float
    wait_us: float | None  # of the rank that waited least
    late: Lateness | None


@dataclass(slots=True)
class JobLook:
    """A job at one moment."""

    ranks: dict[int, LiveRank] = field(default_factory=dict)
    world: int = 0
    pending: list[Outstanding] = field(default_factory=list)
    times: StepTimes | None = None
    unread: list[str] = field(default_factory=list)
    is_kept: bool = False  # no rank has a file, and busbw has made the pattern of the job

    def missing(self) -> list[int]:
        """The ranks that have written nothing."""
        return [rank for rank in range(self.world) if rank not in self.ranks]


@dataclass(frozen=True, slots=True)
class LiveVerdict:
    """What is wrong with a job."""

    verdict: Verdict
    kind: str  # in a word
    message: str
    suspects: Sequence[int] = ()  # ranks
    evidence: Sequence[str] = ()
    next: str = ""  # the command to type


class JobInterval(
    msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="busbw.live_job/1"
):
    """One interval of a watch. Times are in seconds."""

    at: str  # ISO time
    verdict: Verdict
    kind: Annotated[str, Meta(description="what is wrong, in a word; empty if nothing is")] = ""
    suspects: Annotated[list[int], Meta(description="the ranks that are named")] = []
    message: str
    evidence: list[str] = []
    next: Annotated[str, Meta(description="the command to type")] = ""
    step_s: float | None = None
    usual_s: Annotated[float | None, Meta(description="the median of earlier steps")] = None
    waiting: Annotated[float | None, Meta(description="share of a step waited for gradients")] = (
        None
    )
    world: int = 0
    ranks: list[LiveRank] = []
    unread: list[str] = []


def interval(look: JobLook, found: LiveVerdict) -> JobInterval:
    """What is printed of a look and its verdict."""
    at = datetime.fromtimestamp(time.time(), UTC)
    times = look.times
    waiting = None
    if times and times.wait_us is not None:
        waiting = round(min(1.0, times.wait_us / times.now_us), 4)
    return JobInterval(
        at=at.isoformat(timespec="milliseconds"),
        verdict=found.verdict,
        kind=found.kind,
        suspects=list(found.suspects),
        message=found.message,
        evidence=list(found.evidence),
        next=found.next,
        step_s=round(US * times.now_us, 9) if times else None,
        usual_s=round(US * times.usual_us, 9) if times and times.usual_us else None,
        waiting=waiting,
        world=look.world,
        ranks=[look.ranks[number] for number in sorted(look.ranks)],
        unread=look.unread,
    )
