"""What is seen of a running job: its ranks and steps at one moment, and what follows from that."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from busbw.core.finding import Verdict
from busbw.core.lateness import Lateness
from busbw.core.pattern import US
from busbw.host.process import ENDED
from busbw.job.live.host_watch import HostEvidence
from busbw.job.live.rank_use import RankEvidence
from busbw.pattern.lateness.judge import MeanDelay
from busbw.pattern.pending_collective import Outstanding


class LiveRank(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One rank. Times are in seconds."""

    rank: int
    host: str
    pid: int
    is_python: bool = True
    state: Annotated[
        str | None, Meta(description="letter of proc(5), empty without a process; null if unknown")
    ] = None
    stopped_s: Annotated[float, Meta(description="since it was seen stopped")] = 0.0
    resumed_s: Annotated[
        float | None, Meta(description="since it was seen to run again after it was stopped")
    ] = None
    ended: Annotated[bool, Meta(description="its Python came to its end")] = False
    end_s: Annotated[
        float | None, Meta(description="when its process ended; only differences have a meaning")
    ] = None
    end_unix_s: Annotated[
        float | None, Meta(description="when it ended, in Unix seconds by its host's clock")
    ] = None
    unknown_s: Annotated[
        float, Meta(description="since the reader on its host has not answered; 0 if it does")
    ] = 0.0
    signal: Annotated[int, Meta(description="that killed it; 0 if none was seen")] = 0
    exit_code: Annotated[int, Meta(description="with which it exited; 0 if none was seen")] = 0
    steps: int = 0
    still_s: Annotated[
        float, Meta(description="since a step or a call was seen to begin or end")
    ] = 0.0
    unmoved: Annotated[
        bool, Meta(description="none was seen since the watch began: still_s is at least so long")
    ] = False
    stepless_s: Annotated[
        float | None, Meta(description="since a step was seen to end; null if none is counted")
    ] = None
    unwritten_s: Annotated[float, Meta(description="since its files were seen to change")] = 0.0
    call: Annotated[str, Meta(description="the oldest call that it is in")] = ""
    late_s: Annotated[
        float | None,
        Meta(
            description="in each step of the last 30 s, or of 5 s if it has just begun, than the"
            " median of the other ranks; below 0 if it is earlier"
        ),
    ] = None
    late_low_s: Annotated[
        float | None, Meta(description="ends of the interval, at 99.99 % over all ranks")
    ] = None
    late_high_s: float | None = None
    last: Annotated[
        str, Meta(description="how many calls it has made, by communicator, if NCCL reports them")
    ] = ""

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended."""
        return self.state is not None and self.state in ENDED

    @property
    def has_ended(self) -> bool:
        """Whether it makes no calls any more."""
        return self.ended or self.is_gone


LOOKS_S, STEPS = 3.0, 2  # and so many steps: what is written each second is seen a second later
LONGER = 1.25  # times the usual step, lately and for a while


@dataclass(slots=True)
class StepTimes:
    """Of the last steps that all ranks have: medians of the last 5 s, of a while, and of those
    before the last 30 s, or 12 s, None for too few; and the second longest that was read.

    Means are of `seconds`: of the window in which a rank is late or steps are longer, else of 30.
    """

    now_us: float
    lasting_us: float
    usual_us: float | None
    long_us: float
    wait_us: float | None  # of the rank that waited least
    late: Lateness | None
    seconds: float = 30.0
    mean_us: float = 0.0
    usual_mean_us: float | None = None  # of the first of those before
    wait_mean_us: float | None = None  # of the rank that waited least
    wait_grew_us: float | None = None  # the mean of the rank that waited least
    wait_more_us: float | None = None  # the same, than at any time since the watch began
    delays: Mapping[int, MeanDelay] = field(default_factory=dict)  # of each rank
    alone_us: float | None = None  # one step that is left out, as long as many
    alone_waits_us: Mapping[int, float] = field(default_factory=dict)  # in it, of all ranks or none
    unjudged: str = ""  # why it is unknown who is late

    def knows_more(self, other: "StepTimes") -> bool:
        """Whether ranks were compared in more steps: on GPUs, DDP times each 100th alone."""
        own, others = (len(one.late.steps_us) if one.late else 0 for one in (self, other))
        return own > others

    @property
    def is_longer(self) -> bool:
        """Whether steps are longer than usual."""
        if not self.usual_us:
            return False
        return min(self.now_us, self.lasting_us) >= LONGER * self.usual_us


@dataclass(slots=True)
class JobLook:
    """A job at one moment."""

    ranks: dict[int, LiveRank] = field(default_factory=dict)
    world: int = 0
    pending: list[Outstanding] = field(default_factory=list)
    # by process group and rank the number of the last call: of groups all of whose ranks wrote it
    last_calls: dict[str, dict[int, int]] = field(default_factory=dict)
    times: StepTimes | None = None
    unread: list[str] = field(default_factory=list)  # and which ranks came, or were left out
    evidence: dict[int, RankEvidence] = field(default_factory=dict)  # by rank
    host: HostEvidence = field(default_factory=HostEvidence)
    silent: dict[str, str] = field(default_factory=dict)  # hosts that do not answer, and why
    rivals: dict[int, str] = field(default_factory=dict)  # the processes that are one rank
    worlds: dict[int, list[int]] = field(default_factory=dict)  # ranks by the size of their job
    has_launcher: bool = False  # what started a rank that has ended still runs
    order: int = 0  # the signal by which `busbw capture` was told to end the job
    is_kept: bool = False  # no rank has a file, and busbw has made the pattern of the job

    def unknown(self) -> list[int]:
        """The ranks on hosts that do not answer, and with such hosts those of which none has read
        anything.
        """
        lost = [number for number, rank in self.ranks.items() if rank.unknown_s]
        return sorted(lost + (self.missing() if self.silent else []))

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
    cause: str = ""  # in a word
    why: str = ""  # the evidence of the cause
    wrong_if: str = ""  # what would prove it wrong
    is_over: bool = False  # the job has ended


class JobInterval(
    msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="busbw.live-job/1"
):
    """One interval of a watch. Times are in seconds."""

    at: str  # ISO time
    verdict: Verdict
    kind: Annotated[str, Meta(description="what is wrong, in a word; empty if nothing is")] = ""
    suspects: Annotated[list[int], Meta(description="the ranks that are named")] = []
    message: str
    evidence: list[str] = []
    next: Annotated[str, Meta(description="the command to type")] = ""
    cause: Annotated[str, Meta(description="why, in a word; empty if no cause is looked for")] = ""
    why: Annotated[str, Meta(description="the figures that show the cause")] = ""
    wrong_if: Annotated[str, Meta(description="what would prove the cause wrong")] = ""
    step_s: Annotated[
        float | None, Meta(description="the median of the last ones; null while none is made")
    ] = None
    usual_s: Annotated[
        float | None, Meta(description="the median of earlier steps; of all while none is made")
    ] = None
    no_step_s: Annotated[
        float, Meta(description="since a rank was seen to end a step, if that is long ago")
    ] = 0.0
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
    waiting, now_us, usual_us, no_step_s = None, None, None, 0.0
    if times:
        no_step_s, now_us = _no_step_s(look, times), times.now_us
        usual_us = times.usual_us
        if no_step_s:  # what was measured before is not said of now
            now_us, usual_us = None, usual_us or times.now_us
        elif times.wait_us is not None:
            waiting = round(min(1.0, times.wait_us / times.now_us), 4)
    return JobInterval(
        at=at.isoformat(timespec="milliseconds"),
        verdict=found.verdict,
        kind=found.kind,
        suspects=list(found.suspects),
        message=found.message,
        evidence=list(found.evidence),
        next=found.next,
        cause=found.cause,
        why=found.why,
        wrong_if=found.wrong_if,
        step_s=round(US * now_us, 9) if now_us else None,
        usual_s=round(US * usual_us, 9) if usual_us else None,
        no_step_s=round(no_step_s, 3) if no_step_s < math.inf else 0.0,
        waiting=waiting,
        world=look.world,
        ranks=[look.ranks[number] for number in sorted(look.ranks)],
        unread=look.unread,
    )


def _no_step_s(look: JobLook, times: StepTimes) -> float:
    """Since a rank was seen to end a step; 0 if that is no longer ago than usual, inf if all have
    ended.
    """
    since_s = [
        rank.still_s if rank.stepless_s is None else rank.stepless_s
        for rank in look.ranks.values()
        if not rank.has_ended
    ]
    least_s = min(since_s, default=math.inf)
    return least_s if least_s >= LOOKS_S + STEPS * US * times.now_us else 0.0
