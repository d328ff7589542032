"""What the processes of a job say: facts, the most certain first."""

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

from busbw.core.finding import Verdict
from busbw.core.pattern_weights import ranks_text as _ranks
from busbw.host.process import STATES, STOPPED
from busbw.job.live.last_calls import fault, others_agree
from busbw.job.live.parts import SEEN_S, doing_lines
from busbw.job.live.types import JobLook, LiveRank, LiveVerdict
from busbw.job.live.words import ended_at
from busbw.job.live.words import named as _named
from busbw.pattern.rank_ends import first_of, how, signal_name

OVER = "over"  # the kind of a job that has ended
KILLS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)  # no launcher's way to end a job in order

_KERNEL = (
    "see what the rank printed last; busbw check: the kernel's log has kills for lack of memory and"
    " errors of GPUs"
)


def certain(look: JobLook) -> LiveVerdict | None:
    """What the states of the processes say."""
    return next(filter(None, (rule(look) for rule in OF_PROCESSES)), None)


def _over(look: JobLook) -> LiveVerdict | None:
    """All ranks have ended. A launcher ends the others soon after one that died."""
    ranks = list(look.ranks.values())
    if not ranks or not all(rank.has_ended for rank in ranks) or look.unknown():
        return None
    kind, text = OVER, "the job has ended"
    if look.has_launcher:
        kind, text = "ended", "all ranks have ended, and their launcher still runs"
    first, gap_s = _first_gone(look, ranks)
    by_calls = None if _was_killed(first) else fault(look, first)
    found = LiveVerdict(
        Verdict.UNKNOWN,
        kind,
        f"{text}{'' if look.has_launcher else ended_at(ranks)}",
        evidence=_endings(look),
        next="busbw show DIR",
    )
    if by_calls:
        found = replace(by_calls, message=f"{text}: {by_calls.message}")
    elif first and gap_s < math.inf and _how(first):
        found = _went_first(replace(found, message=text), look, first, gap_s)
    elif killed := _killed(look):
        found = replace(
            found,
            verdict=Verdict.FAIL,
            message=f"{text}: {_named(killed)} was killed by"
            f" {signal_name(killed[0].signal)}{ended_at(killed[:1])}",
            suspects=[rank.rank for rank in killed],
            next=_next(killed[0]),
        )
    return replace(found, is_over=not look.has_launcher)


def _went_first(found: LiveVerdict, look: JobLook, first: LiveRank, gap_s: float) -> LiveVerdict:
    """The verdict on a job whose ranks have ended, this one so long before all others."""
    agree = others_agree(look, first) if first.signal == signal.SIGABRT else ""
    ending = f"aborted itself: {agree}" if agree else _how(first)
    at = ended_at([first])
    return replace(
        found,
        verdict=Verdict.FAIL if first.signal in KILLS or agree else Verdict.WARN,
        message=f"{found.message}: {_named([first])} went first{at and f',{at}'},"
        f" {1e3 * gap_s:.0f} ms before another one, and {ending}",
        suspects=[first.rank] if agree else _accused([first]),
        next=_next(first),
    )


def _killed(look: JobLook) -> list[LiveRank]:
    """The ranks that were killed while others did not fail, though it is not known who went first;
    [] of a job that was told to end, all of whose ranks were killed, or of which a rank has left
    nothing.
    """
    if len(look.ranks) < look.world:
        return []
    killed = [rank for rank in look.ranks.values() if rank.signal in KILLS and not rank.ended]
    others = [rank for rank in look.ranks.values() if rank not in killed]
    if look.order or (len(killed) > 1 and not others):
        return []
    failed = [
        rank
        for rank in others
        if rank.ended or rank.exit_code or rank.signal not in (0, signal.SIGTERM)
    ]
    return [] if failed else killed


def _next(rank: LiveRank) -> str:
    """What says why its process has ended."""
    if rank.signal == signal.SIGKILL:
        where = f"on {rank.host}: for lack of memory?"
        return f"see the launcher's output; dmesg -T | grep -i -e oom -e killed  # {where}"
    return _KERNEL


def _endings(look: JobLook) -> list[str]:
    """How the ranks ended that did not end well."""
    lines = []
    if look.order:
        lines.append(f"busbw capture was told to end it by {signal_name(look.order)}")
    texts: dict[str, list[int]] = {}
    for number, rank in sorted(look.ranks.items()):
        text = how(rank.signal, rank.exit_code, ended=rank.ended)
        if text:
            texts.setdefault(text, []).append(number)
    for text, ranks in texts.items():
        own = text.replace("was ", "were ").replace(" its ", " their ") if len(ranks) > 1 else text
        lines.append(f"{_ranks(ranks)} {own}")
    return lines


def _was_killed(first: LiveRank | None) -> bool:
    """Whether the rank that went first was killed from outside: then its last calls say nothing."""
    return first is not None and not first.ended and first.signal not in (0, signal.SIGABRT)


def _first_gone(look: JobLook, gone: Sequence[LiveRank]) -> tuple[LiveRank | None, float]:
    """Which of these processes ended before all others, and how long before: None, if that was not
    seen, they ended together, or a rank has left nothing.
    """
    if len(look.ranks) < look.world:
        return None, 0.0
    rank, gap_s = first_of({rank.rank: rank.end_s for rank in gone})
    return next((one for one in gone if one.rank == rank), None), gap_s


def _how(rank: LiveRank) -> str:
    """How a process ended; '' if it ended well."""
    if rank.signal == signal.SIGABRT:
        return (
            "aborted itself, as Gloo and NCCL do after an error or another call of another rank;"
            " which rank made one is unknown: the last calls were not written"
        )
    return how(rank.signal, rank.exit_code, ended=rank.ended)


def _accused(ranks: Sequence[LiveRank]) -> list[int]:
    """Without those that may have aborted because of another rank."""
    return [rank.rank for rank in ranks if rank.signal != signal.SIGABRT]


def _dead(look: JobLook) -> LiveVerdict | None:
    """A launcher ends the others soon after one that died, some of them before it is looked."""
    dead = [rank for rank in look.ranks.values() if rank.is_gone and not rank.ended]
    if not dead:
        return None
    # one that left early may have been the first
    cause, _ = _first_gone(look, [rank for rank in look.ranks.values() if rank.is_gone])
    by_calls = None if _was_killed(cause or dead[0]) else fault(look, cause)
    if by_calls:
        return by_calls
    first, _ = _first_gone(look, dead)
    dead = [first] if first else dead
    alive = [rank.rank for rank in look.ranks.values() if not (rank.has_ended or rank.unknown_s)]
    others = f"; {_ranks(alive)} still {'runs' if len(alive) == 1 else 'run'}" if alive else ""
    return LiveVerdict(
        Verdict.FAIL,
        "dead",
        f"{_named(dead)} has died{ended_at(dead[:1])}: process {dead[0].pid} {_how(dead[0])}"
        f"{others}",
        _accused(dead),
        doing_lines(look),
        _next(dead[0]),
    )


def _stopped(look: JobLook) -> LiveVerdict | None:
    stopped = [rank for rank in look.ranks.values() if rank.state and rank.state in STOPPED]
    if not stopped or any(rank.state == "t" and rank.stopped_s < SEEN_S for rank in stopped):
        return None
    first = stopped[0]
    state = STATES[first.state or ""]
    pids = " ".join(str(rank.pid) for rank in stopped)
    return LiveVerdict(
        Verdict.FAIL,
        "stopped",
        f"{_named(stopped)} is {state}: process {first.pid}, state {first.state}",
        [rank.rank for rank in stopped],
        doing_lines(look),
        f"kill -CONT {pids}"
        if first.state == "T"
        else f"busbw check job; cat /proc/{first.pid}/status",
    )


OF_PROCESSES: tuple[Callable[[JobLook], LiveVerdict | None], ...] = (_over, _dead, _stopped)
