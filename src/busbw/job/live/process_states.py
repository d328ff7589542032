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
    ended = all(rank.has_ended for rank in look.ranks.values())
    if not (look.ranks and ended) or look.unknown():
        return None
    kind, text = OVER, "the job has ended"
    if look.has_launcher:
        kind, text = "ended", "all ranks have ended, and their launcher still runs"
    is_over = not look.has_launcher
    first, gap_s = _first_gone(list(look.ranks.values()))
    by_calls = None if _was_killed(first) else fault(look, first)
    if by_calls:
        return replace(by_calls, message=f"{text}: {by_calls.message}", is_over=is_over)
    if first and gap_s < math.inf and _how(first):
        agree = others_agree(look, first) if first.signal == signal.SIGABRT else ""
        ending = f"aborted itself: {agree}" if agree else _how(first)
        return LiveVerdict(
            Verdict.FAIL if first.signal in KILLS or agree else Verdict.WARN,
            kind,
            f"{text}: {_named([first])} went first, {1e3 * gap_s:.0f} ms before another one, and"
            f" {ending}",
            [first.rank] if agree else _accused([first]),
            _endings(look),
            _KERNEL,
            is_over=is_over,
        )
    return LiveVerdict(
        Verdict.UNKNOWN, kind, text, (), _endings(look), "busbw show DIR", is_over=is_over
    )


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


def _first_gone(gone: Sequence[LiveRank]) -> tuple[LiveRank | None, float]:
    """Which of these processes ended before all others, and how long before: None, if that was not
    seen or they ended together.
    """
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
    cause, _ = _first_gone([rank for rank in look.ranks.values() if rank.is_gone])
    by_calls = None if _was_killed(cause or dead[0]) else fault(look, cause)
    if by_calls:
        return by_calls
    first, _ = _first_gone(dead)
    dead = [first] if first else dead
    alive = [rank.rank for rank in look.ranks.values() if not (rank.has_ended or rank.unknown_s)]
    others = f"; {_ranks(alive)} still {'runs' if len(alive) == 1 else 'run'}" if alive else ""
    return LiveVerdict(
        Verdict.FAIL,
        "dead",
        f"{_named(dead)} has died: process {dead[0].pid} {_how(dead[0])}{others}",
        _accused(dead),
        doing_lines(look),
        _KERNEL,
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
