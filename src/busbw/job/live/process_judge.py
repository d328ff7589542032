"""What is wrong with a job of which only its processes and NCCL's RAS are seen.

A process that is gone or stopped is a fact, and RAS names ranks. That nothing of this is seen does
not mean that the job makes progress: then the verdict is `unknown`.
"""

import time
from dataclasses import replace

from busbw.core.finding import Verdict
from busbw.core.pattern_weights import ranks_text
from busbw.core.sizes import span
from busbw.host.process import STATES
from busbw.job.diagnose import conclude
from busbw.job.live.process_states import OVER, certain
from busbw.job.live.processes import SPAN_S, ProcessLook, ProcessUse
from busbw.job.live.types import LiveVerdict
from busbw.job.live.words import stack_command
from busbw.job.types import JobData, JobHostStatus, JobReport

RUNS, SLEEPS = 0.5, 0.05  # shares of a CPU
SETTLE_S = 2.0  # ranks of a job that ends may end so long after each other
NAMED_FROM = 3  # of two ranks that differ, either may wait for the other
UNKNOWN = (
    "no process is stopped or gone; whether the job makes progress, and who is late, cannot be seen"
    " from outside"
)
NEXT = "busbw capture --output DIR -- COMMAND starts a job that can be watched"


def judge_processes(look: ProcessLook) -> LiveVerdict:
    found = certain(look.job)  # whose evidence is of calls
    evidence: list[str] = []
    if found is None:
        found = _by_ras(look) or _ended(look) or _odd(look)
        evidence += found.evidence if found else ()
    if found is None:
        found = LiveVerdict(Verdict.UNKNOWN, "unjudged", UNKNOWN, next=NEXT)
    evidence += _uses(look)
    if look.no_ras:
        evidence.append(f"NCCL's RAS: {look.no_ras}")
    next_command = "" if (found.verdict, found.kind) == (Verdict.UNKNOWN, OVER) else found.next
    return replace(found, evidence=evidence, next=next_command)


def _by_ras(look: ProcessLook) -> LiveVerdict | None:
    """What RAS says, as `busbw check job` concludes. That it sees progress proves nothing: its
    counts are of launched calls, and those of one communicator may hide another one's.
    """
    if not look.ras:
        return None
    states = {rank.pid: rank.state or "" for rank in look.job.ranks.values()}
    host = JobHostStatus(addresses=[], states=states)
    after = look.ras[-1]
    host.addresses = list({rank.host for rank in after.processes() if rank.pid in states})
    job = JobData(seconds=0.0, before=look.ras[0], after=after, hosts={"this host": host})
    report = JobReport(at="", seconds=0.0)
    conclude(job, report)
    if report.verdict is not Verdict.FAIL:
        return None
    named = {rank.pid for comm in after.comms for rank in comm.ranks if rank.problem}
    behind = {
        rank.pid for comm in after.comms for ranks in comm.behind().values() for rank in ranks
    }
    suspects = [rank.rank for rank in look.job.ranks.values() if rank.pid in (named or behind)]
    return LiveVerdict(
        Verdict.FAIL, "ras", report.message, suspects, report.evidence, "busbw check job"
    )


def _ended(look: ProcessLook) -> LiveVerdict | None:
    """Ranks that are gone, without a signal that was seen, while others run for longer than those
    of a job that ends.
    """
    now_s = time.monotonic()
    ranks = look.job.ranks.values()
    gone = [rank for rank in ranks if rank.ended and now_s - (rank.end_s or now_s) >= SETTLE_S]
    run = [rank.rank for rank in ranks if not rank.ended]
    if not gone or not run:
        return None
    suspects = [rank.rank for rank in gone]
    message = (
        f"{ranks_text(suspects)} ended, process {gone[0].pid}, and {ranks_text(run)} still run:"
        " whether it failed is unknown"
    )
    return LiveVerdict(Verdict.WARN, "ended", message, suspects, (), "busbw check")


def _odd(look: ProcessLook) -> LiveVerdict | None:
    """The one rank that does not read what others send, or that alone runs or sleeps."""
    if len(look.uses) < NAMED_FROM:
        return None
    unread = [rank for rank, use in look.uses.items() if use.unread_s >= SPAN_S]
    if len(unread) == 1:
        use = look.uses[unread[0]]
        size = use.queues.unread if use.queues else 0
        message = (
            f"{ranks_text(unread)} has not read {size} bytes that others sent for"
            f" {span(use.unread_s)}: they may wait for it"
        )
        return _may_wait(look, unread, message)
    shares = {rank: use.cpu for rank, use in look.uses.items() if use.cpu is not None}
    if len(shares) < len(look.uses):
        return None
    runs = [rank for rank, share in shares.items() if share >= RUNS]
    sleeps = [rank for rank, share in shares.items() if share < SLEEPS]
    for odd, others, text in ((runs, sleeps, "runs"), (sleeps, runs, "sleeps")):
        if len(odd) == 1 and len(odd) + len(others) == len(shares):
            message = (
                f"{ranks_text(odd)} alone {text} for {SPAN_S:g} s: ranks {_numbers(others)} may"
                " wait for it"
            )
            return _may_wait(look, odd, message)
    return None


def _numbers(ranks: list[int]) -> str:
    return ranks_text(ranks).partition(" ")[2]


def _may_wait(look: ProcessLook, suspects: list[int], message: str) -> LiveVerdict:
    rank = look.job.ranks[suspects[0]]
    return LiveVerdict(Verdict.WARN, "differs", message, suspects, (), stack_command(rank))


def _uses(look: ProcessLook) -> list[str]:
    """What the processes do: of many, those that differ."""
    texts: dict[str, list[int]] = {}
    for number, use in look.uses.items():
        state = look.job.ranks[number].state or ""
        texts.setdefault(_use_text(state, use), []).append(number)
    return [f"{ranks_text(ranks)}: {text}" for text, ranks in texts.items()]


def _use_text(state: str, use: ProcessUse) -> str:
    words = [f"process {STATES[state]}" if state in STATES else f"state {state}"]
    if use.cpu is not None:
        words.append(f"{100 * use.cpu:.0f} % of a CPU")
    if use.place:
        words.append(f"in {use.place}")
    if use.queues is None:
        words.append("no TCP connection is seen")
    elif use.queues.unread or use.queues.unsent:
        words.append(f"{use.queues.unread} bytes unread, {use.queues.unsent} unsent")
    return ", ".join(words)
